// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// restarted is the event of a restart of the Deployment web.
const restarted = "Normal ConfigRestarted Deployment/shop/web: Restarted because Secret/db has changed"

// recorder records events.
type recorder struct{ c *cluster }

var _ record.EventRecorder = recorder{}

func (r recorder) Event(o runtime.Object, eventType, reason, message string) {
	ref := o.(*corev1.ObjectReference)
	if r.c.hear != nil {
		r.c.hear(reason)
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.events = append(r.c.events, fmt.Sprintf("%s %s %s/%s/%s: %s", eventType, reason, ref.Kind, ref.Namespace, ref.Name, message))
}

func (r recorder) Eventf(o runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(o, eventType, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(o runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Eventf(o, eventType, reason, format, args...)
}

// told returns the events since the last call.
func (c *cluster) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.events
	c.events = nil
	return out
}

func (c *cluster) expectEvents(what string, want ...string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.told()); diff != "" {
		c.t.Fatalf("%s: events (-want +got):\n%s", what, diff)
	}
}
