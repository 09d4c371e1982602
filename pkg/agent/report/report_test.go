// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/source"
	"github.com/configdep/configdep/pkg/agent/status"
)

// fakeCluster takes requests.
type fakeCluster struct {
	mu   sync.Mutex
	sent []string
	err  error
	// events is what is wrong with Events alone, and tries is how often one was tried.
	events error
	tries  int
}

func (f *fakeCluster) Send(_ context.Context, method, path, contentType string, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if method == http.MethodPost {
		if f.tries++; f.events != nil {
			return f.events
		}
	}
	if method == http.MethodPatch && contentType != "application/merge-patch+json" {
		return errors.New("no merge patch")
	}
	var o struct {
		Metadata struct {
			UID         string
			Annotations map[string]string
		}
		Reason, Type, Message string
		InvolvedObject        struct{ UID string }
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	if method == http.MethodPatch {
		f.sent = append(f.sent, fmt.Sprintf("%s %s: %s", path, o.Metadata.UID, o.Metadata.Annotations[status.Annotation]))
	} else {
		f.sent = append(f.sent, fmt.Sprintf("%s %s: %s %s %s", path, o.InvolvedObject.UID, o.Type, o.Reason, o.Message))
	}
	return nil
}

func (f *fakeCluster) will(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// refuseEvents sets what is wrong with Events, and returns how often one was tried.
func (f *fakeCluster) refuseEvents(err error) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = err
	return f.tries
}

// bench is a reporter in a bubble.
type bench struct {
	*testing.T
	*fakeCluster
	reporter *Reporter
	mu       sync.Mutex
	status   agent.Status
}

func run(t *testing.T, o Options, test func(*bench)) {
	t.Helper()
	runLogging(t, o, klog.Logger{}, test)
}

func runLogging(t *testing.T, o Options, logger klog.Logger, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, fakeCluster: &fakeCluster{}}
		o.Least, o.RetryMin, o.RetryMax = time.Second, time.Second, time.Minute
		b.reporter = New(b, Pod{"shop", "web-1", "u1"}, o, func() agent.Status {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.status
		})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan struct{})
		go func() { b.reporter.Run(ctx); close(done) }()
		synctest.Wait()
		test(b)
		cancel()
		<-done
	})
}

func (b *bench) set(change func(*agent.Status)) {
	b.mu.Lock()
	change(&b.status)
	b.mu.Unlock()
	b.reporter.Notify()
}

// after lets time pass, and fails unless something was sent meanwhile.
func (b *bench) after(d time.Duration, want ...string) {
	b.Helper()
	time.Sleep(d) //nolint:forbidigo // of the clock of synctest: all goroutines wait when it passes, and it takes no time
	synctest.Wait()
	b.fakeCluster.mu.Lock()
	defer b.fakeCluster.mu.Unlock()
	if diff := cmp.Diff(want, b.sent); diff != "" {
		b.Errorf("sent (-want +got):\n%s", diff)
	}
	b.sent = nil
}

func version(n int) []source.Version {
	return []source.Version{{Kind: source.Secret, Namespace: "shop", Name: "tls", UID: "s1", ResourceVersion: fmt.Sprint(n)}}
}

func applied(n int) func(*agent.Status) {
	return func(s *agent.Status) {
		*s = agent.Status{Started: true, Wanted: "a", Applied: "a", Versions: version(n)}
	}
}

const pod = "/api/v1/namespaces/shop/pods/web-1 u1: "

func annotation(state string, n int) string {
	return pod + fmt.Sprintf(`{%s,"sources":[{"kind":"Secret","namespace":"shop","name":"tls","uid":"s1","resourceVersion":"%d"}]}`, state, n)
}

// What is left out of what is applied has an Event of its own, and so has that nothing is anymore.
func TestReporter_Rejected(t *testing.T) {
	const why = "ConfigMap shop/a is left out: it is bad"
	run(t, Options{Events: true}, func(b *bench) {
		b.set(func(s *agent.Status) {
			applied(1)(s)
			s.Rejected = []source.Rejected{{Kind: source.ConfigMap, Namespace: "shop", Name: "a", Why: why}}
			if r := Of(s); r.State != status.Applied || r.Message != why {
				b.Errorf("%+v", r)
			}
		})
		const events = "/api/v1/namespaces/shop/events u1: "
		b.after(time.Second, events+"Warning ConfigSourceRejected "+why)
		b.set(applied(1))
		b.after(10*time.Second, events+"Normal ConfigApplied The application works with the content of its sources")
	})
}

func TestReporter(t *testing.T) {
	run(t, Options{Annotate: true}, func(b *bench) {
		b.after(time.Millisecond, pod+`{"state":"Applying"}`)
		b.set(applied(1))
		b.after(time.Second, annotation(`"state":"Applied"`, 1))
		b.after(20 * time.Minute)
		b.reporter.Notify() // nothing has changed
		b.after(20 * time.Minute)
		// Versions alone wait longer, and only the last ones are reported.
		b.set(applied(2))
		b.after(0, annotation(`"state":"Applied"`, 2)) // the last report is long ago
		b.set(applied(3))
		b.after(time.Second)
		b.set(applied(4))
		b.after(9*time.Second, annotation(`"state":"Applied"`, 4))
		// A failure does not.
		b.set(applied(5))
		b.set(func(s *agent.Status) {
			s.Wanted, s.Failure, s.Versions = "b", &agent.FailureError{Step: agent.Check, Err: errors.New("exit code 1")}, version(4)
		})
		b.after(time.Second, annotation(`"state":"Failed","message":"check: exit code 1"`, 4))
		b.set(func(s *agent.Status) { s.RolledBack = true })
		b.after(time.Second, annotation(`"state":"Failed","message":"check: exit code 1; the files that were applied last are back"`, 4))
		b.set(func(s *agent.Status) { s.Unread = errors.New("a is missing\nb is missing") })
		b.after(time.Second, annotation(`"state":"Incomplete","message":"a is missing; b is missing"`, 4))
	})
}

// What could not be reported is tried again, less and less often.
func TestReporter_Retries(t *testing.T) {
	run(t, Options{Annotate: true}, func(b *bench) {
		b.after(time.Minute, pod+`{"state":"Applying"}`)
		b.will(errors.New("no"))
		b.set(applied(1))
		b.after(20 * time.Minute)
		b.will(nil)
		b.after(time.Minute, annotation(`"state":"Applied"`, 1))
		b.after(20 * time.Minute)
	})
}

// A status that changes again and again does not put off the next try.
func TestReporter_RetriesWhileTheStatusChanges(t *testing.T) {
	run(t, Options{Annotate: true}, func(b *bench) {
		b.after(time.Minute, pod+`{"state":"Applying"}`)
		b.will(errors.New("no"))
		b.set(applied(1))
		b.after(20 * time.Minute)
		b.will(nil)
		for range 1000 {
			b.reporter.Notify()
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // of the clock of synctest
		}
		b.after(0, annotation(`"state":"Applied"`, 1))
	})
}

// An annotation that was lost is written again.
func TestReporter_WritesAgain(t *testing.T) {
	run(t, Options{Annotate: true}, func(b *bench) {
		b.after(time.Minute, pod+`{"state":"Applying"}`)
		b.set(applied(1))
		b.after(time.Second, annotation(`"state":"Applied"`, 1))
		b.after(time.Hour - 2*time.Second)
		b.after(7*time.Minute, annotation(`"state":"Applied"`, 1))
	})
}

// Errors that differ in their numbers alone, as those of ports, make one Event, and content that changes all the time makes few of them.
func TestReporter_FewEvents(t *testing.T) {
	run(t, Options{Events: true}, func(b *bench) {
		for port := range 10 {
			b.set(func(s *agent.Status) {
				s.Failure = &agent.FailureError{Step: agent.Reload, Err: fmt.Errorf("from port %d: reset", port)}
			})
			time.Sleep(time.Minute) //nolint:forbidigo // of the clock of synctest
		}
		b.after(0, "/api/v1/namespaces/shop/events u1: Warning ConfigNotApplied reload: from port 0: reset")
		for i := range 1800 { // for an hour
			b.set(applied(i))
			time.Sleep(time.Second) //nolint:forbidigo // of the clock of synctest
			b.set(func(s *agent.Status) { s.Wanted = "b" })
			time.Sleep(time.Second) //nolint:forbidigo // of the clock of synctest
		}
		b.fakeCluster.mu.Lock()
		defer b.fakeCluster.mu.Unlock()
		if n := len(b.sent); n < 30 || n > 40 {
			t.Errorf("%d Events", n)
		}
	})
}

// Tries that fail count for nothing: once the API server answers, all Events come as they should.
func TestReporter_EventsAfterAnOutage(t *testing.T) {
	run(t, Options{Events: true}, func(b *bench) {
		b.refuseEvents(errors.New("x"))
		b.set(applied(1))
		b.after(40 * time.Minute)
		b.refuseEvents(nil)
		b.after(time.Minute, "/api/v1/namespaces/shop/events u1: Normal ConfigApplied The application works with the content of its sources")
		b.set(func(s *agent.Status) { s.Unread = errors.New("a is missing") })
		b.after(time.Second, "/api/v1/namespaces/shop/events u1: Warning ConfigSourceMissing a is missing")
	})
}

func TestReporter_Events(t *testing.T) {
	const events = "/api/v1/namespaces/shop/events u1: "
	run(t, Options{Events: true}, func(b *bench) {
		b.after(time.Minute)
		b.set(applied(1))
		b.after(time.Second, events+"Normal ConfigApplied The application works with the content of its sources")
		b.set(applied(2))
		b.after(20 * time.Minute)
		b.set(func(s *agent.Status) { s.Failure = &agent.FailureError{Step: agent.Reload, Err: errors.New("x")} })
		b.after(time.Second, events+"Warning ConfigNotApplied reload: x")
		b.reporter.Notify()
		b.after(20 * time.Minute)
		b.set(func(s *agent.Status) { s.Unread = errors.New("a is missing") })
		b.after(time.Second, events+"Warning ConfigSourceMissing a is missing")
	})
}

// Events that cannot be written change nothing about the annotation, which is not written again for them.
func TestReporter_EventsFail(t *testing.T) {
	const events = "/api/v1/namespaces/shop/events u1: "
	for name, c := range map[string]struct {
		err   error
		tries int      // at most
		later []string // what is sent once Events can be written
	}{
		"forbidden": {err: &source.StatusError{Code: http.StatusForbidden, Message: "events is forbidden"}, tries: 2},
		"failing": {
			err:   &source.StatusError{Code: http.StatusInternalServerError, Message: "etcd is away"},
			tries: 300, later: []string{events + "Warning ConfigNotApplied reload: x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
			runLogging(t, Options{Annotate: true, Events: true}, logger, func(b *bench) {
				b.after(time.Minute, pod+`{"state":"Applying"}`)
				b.refuseEvents(c.err)
				b.set(applied(1))
				b.after(time.Second, annotation(`"state":"Applied"`, 1))
				b.after(20 * time.Minute)
				b.set(func(s *agent.Status) { s.Failure = &agent.FailureError{Step: agent.Reload, Err: errors.New("x")} })
				b.after(time.Second, annotation(`"state":"Failed","message":"reload: x"`, 1))
				b.after(20 * time.Minute)
				if tries := b.refuseEvents(nil); tries < 2 || tries > c.tries {
					b.Errorf("%d tries", tries)
				}
				b.after(20*time.Minute, c.later...)
			})
			if n := strings.Count(log.String(), c.err.Error()); n != 1 {
				t.Errorf("%d lines of the log in:\n%s", n, log.String())
			}
		})
	}
}

// The right to create Events may come later, and go again.
func TestReporter_EventsAllowedLater(t *testing.T) {
	const events = "/api/v1/namespaces/shop/events u1: "
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	forbidden := &source.StatusError{Code: http.StatusForbidden, Message: "events is forbidden"}
	runLogging(t, Options{Events: true}, logger, func(b *bench) {
		for range 3 {
			b.refuseEvents(forbidden)
			b.set(applied(1))
			b.after(20 * time.Minute)
			b.refuseEvents(nil)
			b.set(func(s *agent.Status) { s.Unread = errors.New("a is missing") })
			b.after(time.Hour, events+"Warning ConfigSourceMissing a is missing")
		}
	})
	if n := strings.Count(log.String(), forbidden.Message); n != 3 {
		t.Errorf("%d lines of the log in:\n%s", n, log.String())
	}
}

// A report has a limit, whatever the sources and the message.
func TestOf_Limits(t *testing.T) {
	s := agent.Status{Unread: errors.New(strings.Repeat("ä", 1000))}
	for i := range status.MaxSources {
		s.Versions = append(s.Versions, source.Version{Name: fmt.Sprint(i)})
	}
	r := Of(&s)
	if len(r.Sources) != status.MaxSources || len(r.Message) > status.MaxMessage || !utf8.ValidString(r.Message) || !strings.HasSuffix(r.Message, "ä…") {
		t.Errorf("%d sources, message of %d bytes: %s", len(r.Sources), len(r.Message), r.Message)
	}
	s.Versions = append(s.Versions, source.Version{Name: "one too many"})
	if r := Of(&s); len(r.Sources) != 0 {
		t.Errorf("%d sources", len(r.Sources))
	}
}
