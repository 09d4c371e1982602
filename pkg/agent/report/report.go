// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package report tells the cluster what an agent has applied: in an annotation of its pod, from which the server of configdep knows whether
// the pod has the content of its sources, and in Events.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/status"
)

// Of makes the report of a status.
func Of(s *agent.Status) *status.Report {
	r := &status.Report{State: status.Applying}
	switch {
	case s.Unread != nil:
		r.State, r.Message = status.Incomplete, s.Unread.Error()
	case s.Failure != nil:
		r.State, r.Message = status.Failed, s.Failure.Error()
		if s.RolledBack {
			r.Message += "; the files that were applied last are back"
		}
	case s.InSync():
		r.State = status.Applied
	}
	r.Message = shorten(r.Message)
	if len(s.Versions) <= status.MaxSources {
		for _, v := range s.Versions {
			r.Sources = append(r.Sources, status.Source{Kind: string(v.Kind), Namespace: v.Namespace, Name: v.Name, UID: v.UID, ResourceVersion: v.ResourceVersion})
		}
	}
	return r
}

// shorten cuts a text at a boundary of characters.
func shorten(s string) string {
	s = strings.ReplaceAll(s, "\n", "; ")
	if len(s) <= status.MaxMessage {
		return s
	}
	cut := status.MaxMessage - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Client sends requests to the API server.
type Client interface {
	Send(ctx context.Context, method, path, contentType string, body []byte) error
}

// Pod is the pod of an agent.
type Pod struct{ Namespace, Name, UID string }

// Options are what is reported, and how often.
type Options struct {
	Annotate, Events bool
	// Least is the time between two annotations at least, and of versions alone ten times that.
	Least time.Duration
	// RetryMin and RetryMax are between two tries.
	RetryMin, RetryMax time.Duration
}

// Reporter reports what an agent does.
type Reporter struct {
	client  Client
	pod     Pod
	options Options
	status  func() agent.Status
	changed chan struct{}
}

// New returns a reporter for a pod, which asks for the status of its agent.
func New(c Client, pod Pod, o Options, status func() agent.Status) *Reporter {
	return &Reporter{client: c, pod: pod, options: o, status: status, changed: make(chan struct{}, 1)}
}

// Notify tells that the status has changed. It does not wait.
func (r *Reporter) Notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run reports until the context ends.
func (r *Reporter) Run(ctx context.Context) {
	var last *status.Report // what has been reported
	var at time.Time
	var retry time.Time // of the next try after failures
	failures := 0
	for {
		var due <-chan time.Time
		s := r.status()
		now := Of(&s)
		switch {
		case last != nil && failures == 0 && equal(now, last):
		case failures > 0:
			due = time.After(time.Until(retry))
		default:
			least := r.options.Least
			if last != nil && now.State == last.State && now.Message == last.Message {
				least *= 10
			}
			due = time.After(time.Until(at.Add(least)))
		}
		if due == nil {
			select {
			case <-r.changed:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case <-r.changed:
			continue // it may be due earlier
		case <-due:
		case <-ctx.Done():
			return
		}
		s = r.status()
		now = Of(&s)
		if err := r.send(ctx, last, now); err != nil {
			if failures++; failures == 1 {
				klog.FromContext(ctx).Error(err, "The state cannot be reported, will retry")
			}
			delay := min(r.options.RetryMin<<min(failures-1, 10), r.options.RetryMax)
			retry = time.Now().Add(delay/2 + rand.N(delay/2+1)) //nolint:gosec // no secret
			continue
		}
		last, at, failures = now, time.Now(), 0
	}
}

func equal(r, other *status.Report) bool {
	if r.State != other.State || r.Message != other.Message || len(r.Sources) != len(other.Sources) {
		return false
	}
	for i, s := range r.Sources {
		if s != other.Sources[i] {
			return false
		}
	}
	return true
}

// send sends a report, and an Event if the state is another one.
func (r *Reporter) send(ctx context.Context, last, now *status.Report) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("no answer within 30s"))
	defer cancel()
	base := "/api/v1/namespaces/" + r.pod.Namespace
	if r.options.Annotate {
		value, err := json.Marshal(now)
		if err != nil {
			return err
		}
		meta := map[string]any{"annotations": map[string]string{status.Annotation: string(value)}}
		if r.pod.UID != "" {
			meta["uid"] = r.pod.UID // of another pod with the same name it is refused
		}
		patch, err := json.Marshal(map[string]any{"metadata": meta})
		if err != nil {
			return err
		}
		if err := r.client.Send(ctx, http.MethodPatch, base+"/pods/"+r.pod.Name, "application/merge-patch+json", patch); err != nil {
			return err
		}
	}
	if !r.options.Events || last != nil && last.State == now.State && last.Message == now.Message {
		return nil
	}
	event, err := json.Marshal(r.event(now))
	if err != nil || event == nil || now.State == status.Applying {
		return err
	}
	return r.client.Send(ctx, http.MethodPost, base+"/events", "application/json", event)
}

// event makes the Event of a report.
func (r *Reporter) event(now *status.Report) map[string]any {
	reason, kind, message := "ConfigApplied", "Normal", "The application works with the content of its sources"
	if now.State != status.Applied {
		kind, message = "Warning", now.Message
		if reason = "ConfigNotApplied"; now.State == status.Incomplete {
			reason = "ConfigSourceMissing"
		}
	}
	at := time.Now().UTC().Format(time.RFC3339)
	return map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]string{"generateName": r.pod.Name + ".", "namespace": r.pod.Namespace},
		"involvedObject": map[string]string{"apiVersion": "v1", "kind": "Pod", "namespace": r.pod.Namespace, "name": r.pod.Name, "uid": r.pod.UID},
		"reason":         reason, "type": kind, "message": message, "firstTimestamp": at, "lastTimestamp": at, "count": 1,
		"source": map[string]string{"component": "configdep-agent"}, "reportingComponent": "configdep-agent", "reportingInstance": r.pod.Name,
	}
}
