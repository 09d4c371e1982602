// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditPolicy makes the API server log the requests of the users whose names are formatted into it, once each, when
// they have been answered. It logs the server and the floor alike, because logging has a cost. Requests that occur
// without any change are left out: watches are restarted, leases are renewed, and a server of an API authenticates
// and authorizes its callers, such as the aggregator.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [
{"level": "None", "verbs": ["watch"]},
{"level": "None", "resources": [{"group": "coordination.k8s.io"}, {"group": "authentication.k8s.io"}, {"group": "authorization.k8s.io"}]},
{"level": "Metadata", "users": [%q, %q]},
{"level": "None"}
]}`

// auditFile is the log, in the folder of the control plane.
const auditFile = "audit.log"

// auditArgs writes the policy into a folder, which must exist as long as kube-apiserver runs, and returns the flags of
// kube-apiserver.
func auditArgs(dir string) ([]string, error) {
	path := filepath.Join(dir, "audit-policy.json")
	users := fmt.Sprintf(auditPolicy, user, accountOf(floorName))
	if err := os.WriteFile(path, []byte(users), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + auditFile, "--audit-log-maxsize=1000"}, nil
}

// apiCall is an entry of the audit log.
type apiCall struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	RequestURI string           `json:"requestURI"`
	Received   metav1.MicroTime `json:"requestReceivedTimestamp"`
}

// calls returns the number of logged requests of the server that arrived between two times, by verb and resource.
func (e *environment) calls(since, until time.Time) (map[string]int, error) {
	f, err := os.Open(filepath.Join(e.cluster.Dir(), auditFile))
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer f.Close()
	return callsIn(bufio.NewScanner(f), user, since, until)
}

// listOfNothing is part of the requests by which the server reads the current revision of a resource, and discovery is
// the one by which it looks for optional resources, both periodically. These requests do not count.
const (
	listOfNothing = "metadata.name%3D-"
	discovery     = "/apis"
)

func callsIn(lines *bufio.Scanner, user string, since, until time.Time) (map[string]int, error) {
	lines.Buffer(nil, 1<<20)
	found := map[string]int{}
	all := 0
	for lines.Scan() {
		var c apiCall
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if c.User.Username != user {
			continue
		}
		all++
		if c.Received.Time.Before(since) || c.Received.After(until) || strings.Contains(c.RequestURI, listOfNothing) || c.RequestURI == discovery {
			continue
		}
		what := c.ObjectRef.Resource
		if what == "" {
			what = c.RequestURI
		}
		found[c.Verb+" "+what]++
	}
	if all == 0 {
		return nil, errors.New("the audit log has no request of " + user + ", which has at least listed objects")
	}
	return found, lines.Err()
}

// idle waits until the server has sent no request for a second: requests that follow a restart, such as those for
// events, may take longer than the restart.
func (e *environment) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, idleLimit, fmt.Errorf("the server still sends requests after %v", idleLimit))
	defer cancel()
	var size int64
	var failed error
	since := time.Now()
	err := poll(ctx, 50*time.Millisecond, func() bool {
		info, err := os.Stat(filepath.Join(e.cluster.Dir(), auditFile))
		switch {
		case err != nil:
			failed = fmt.Errorf("reading the audit log: %w", err)
		case info.Size() != size:
			size, since = info.Size(), time.Now()
		}
		return failed != nil || time.Since(since) >= time.Second
	})
	return errors.Join(failed, err)
}

// idleLimit is how long the server may take to become idle.
const idleLimit = 5 * time.Minute
