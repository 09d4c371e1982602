// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// A Role that allows to list and not to watch is told of once, although each list succeeds.
func TestWatcher_MayNotWatch(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	s.set("a", x("1"))
	s.willWatch(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	client, err := NewClient(Server{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWatcher(client, &Spec{Kind: Secret, Namespace: "shop", Name: "a"}, 100, func() {})
	w.pace = pace{list: time.Minute, answer: time.Minute, watch: time.Hour, idle: time.Minute, min: time.Millisecond, max: time.Millisecond}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
	defer cancel()
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	await(t, "it is tried again and again", func() bool { return len(s.asked()) > 20 })
	cancel()
	<-done
	if n := strings.Count(log.String(), "will retry"); n != 1 || !strings.Contains(log.String(), "403") {
		t.Errorf("it is logged %d times:\n%s", n, &log)
	}
}
