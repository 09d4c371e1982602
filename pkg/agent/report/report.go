// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package report tells the cluster what an agent has applied: in an annotation of its pod, from which the server of configdep knows whether
// the pod has the content of its sources, and in Events.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/source"
	"github.com/configdep/configdep/pkg/agent/status"
)

// Of makes the report of a status.
func Of(s *agent.Status) *status.Report {
	r := &status.Report{State: status.Applying}
	switch {
	case errors.Is(s.Unread, agent.ErrNotRead):
		r.Message = s.Unread.Error()
	case s.Unread != nil:
		r.State, r.Message = status.Incomplete, s.Unread.Error()
	case s.Failure != nil:
		r.State, r.Message = status.Failed, s.Failure.Error()
		if s.RolledBack {
			r.Message += "; the files that were applied last are back"
		}
	case s.InSync():
		r.State, r.Message = status.Applied, source.Rejections(s.Rejected)
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

// again is after how long the annotation is written again, which changes nothing unless it was lost: another client may have removed it,
// or etcd may have been restored.
const again = time.Hour

// So many Events in a row, and then one in this time, as by the recorders of the controllers of Kubernetes.
const (
	eventBurst = 25
	eventEvery = 5 * time.Minute
)

// Reporter reports what an agent does.
type Reporter struct {
	client  Client
	pod     Pod
	options Options
	status  func() agent.Status
	ways    []*way
}

// way is one way to report. One that fails does not keep the other.
type way struct {
	name    string // for the log
	changed chan struct{}
	// same reports whether now need not be sent after last.
	same  func(last, now *status.Report) bool
	again time.Duration        // after which it is sent all the same; 0: it is not
	wait  func() time.Duration // until another report is allowed; nil: it is
	send  func(ctx context.Context, now *status.Report) error
}

// New returns a reporter for a pod, which asks for the status of its agent.
func New(c Client, pod Pod, o Options, status func() agent.Status) *Reporter {
	r := &Reporter{client: c, pod: pod, options: o, status: status}
	if o.Annotate {
		r.ways = append(r.ways, &way{name: "annotation", changed: make(chan struct{}, 1), same: equal, again: again, send: r.annotate})
	}
	if o.Events {
		e := events{Reporter: r, limit: rate.NewLimiter(rate.Every(eventEvery), eventBurst)}
		r.ways = append(r.ways, &way{name: "Event", changed: make(chan struct{}, 1), same: sameEvent, wait: e.wait, send: e.send})
	}
	return r
}

// Notify tells that the status has changed. It does not wait.
func (r *Reporter) Notify() {
	for _, w := range r.ways {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// Run reports until the context ends.
func (r *Reporter) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, w := range r.ways {
		running.Go(func() { r.follow(ctx, w) })
	}
	running.Wait()
}

// follow reports in one way.
func (r *Reporter) follow(ctx context.Context, w *way) {
	var last *status.Report // what has been reported
	var at time.Time
	var retry time.Time                                // of the next try after failures
	failures, again := 0, w.again+rand.N(w.again/10+1) //nolint:gosec // no secret
	for {
		var due <-chan time.Time
		s := r.status()
		now := Of(&s)
		switch {
		case last != nil && failures == 0 && w.same(last, now):
			if w.again > 0 {
				due = time.After(time.Until(at.Add(again)))
			}
		case failures > 0:
			due = time.After(time.Until(retry))
		default:
			least := r.options.Least
			if last != nil && sameState(now, last) {
				least *= 10
			}
			wait := time.Until(at.Add(least))
			if w.wait != nil {
				wait = max(wait, w.wait())
			}
			due = time.After(wait)
		}
		select {
		case <-w.changed:
			continue // it may be due earlier
		case <-due:
		case <-ctx.Done():
			return
		}
		s = r.status()
		now = Of(&s)
		if err := w.send(ctx, now); err != nil {
			if failures++; failures == 1 {
				klog.FromContext(ctx).Error(err, "The state cannot be reported, will retry", "way", w.name)
			}
			delay := min(r.options.RetryMin<<min(failures-1, 10), r.options.RetryMax)
			retry = time.Now().Add(delay/2 + rand.N(delay/2+1)) //nolint:gosec // no secret
			continue
		}
		last, at, failures = now, time.Now(), 0
	}
}

// sameEvent reports whether nothing but versions and numbers differs: those of ports differ with each try.
func sameEvent(last, now *status.Report) bool {
	return last.State == now.State && source.WithoutNumbers(last.Message) == source.WithoutNumbers(now.Message)
}

// sameState reports whether nothing but versions differs.
func sameState(r, other *status.Report) bool {
	return r.State == other.State && r.Message == other.Message
}

func equal(r, other *status.Report) bool {
	return sameState(r, other) && slices.Equal(r.Sources, other.Sources)
}

// annotate writes a report to the annotation of the pod.
func (r *Reporter) annotate(ctx context.Context, now *status.Report) error {
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
	return r.request(ctx, http.MethodPatch, "/pods/"+r.pod.Name, "application/merge-patch+json", patch)
}

func (r *Reporter) request(ctx context.Context, method, path, contentType string, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("no answer within 30s"))
	defer cancel()
	return r.client.Send(ctx, method, "/api/v1/namespaces/"+r.pod.Namespace+path, contentType, body)
}

// events writes Events.
type events struct {
	*Reporter
	limit     *rate.Limiter
	forbidden bool // which has been logged
}

// wait returns how long to wait until another Event is allowed.
func (e *events) wait() time.Duration {
	missing := max(0, 1-e.limit.Tokens())
	return time.Duration(missing * float64(eventEvery))
}

// send writes the Event of a report. It is dropped if Events are forbidden: trying again would not help, and the next one shows whether the
// right has been granted.
func (e *events) send(ctx context.Context, now *status.Report) error {
	if now.State == status.Applying {
		return nil
	}
	event, err := json.Marshal(e.event(now))
	if err != nil {
		return err
	}
	if err = e.request(ctx, http.MethodPost, "/events", "application/json", event); err == nil {
		e.limit.Allow()
	}
	forbidden := false
	if refused, is := errors.AsType[*source.StatusError](err); is && refused.Code == http.StatusForbidden {
		if !e.forbidden {
			klog.FromContext(ctx).Error(err, "Events cannot be written, because the agent has no right to create them")
		}
		forbidden, err = true, nil
	}
	e.forbidden = forbidden
	return err
}

// event makes the Event of a report.
func (r *Reporter) event(now *status.Report) map[string]any {
	reason, kind, message := "ConfigApplied", "Normal", "The application works with the content of its sources"
	if now.Message != "" {
		kind, message = "Warning", now.Message
		switch now.State {
		case status.Applied:
			reason = "ConfigSourceRejected"
		case status.Incomplete:
			reason = "ConfigSourceMissing"
		default:
			reason = "ConfigNotApplied"
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
