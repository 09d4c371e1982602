// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The last good set comes back after failures, and stays until there is something newer.
func TestRollback(t *testing.T) {
	run(t, func(b *bench) { b.config.Rollback = 2 }, func(b *bench) {
		b.source.set("a", "good")
		synctest.Wait()
		b.reload.will(func(_ context.Context, content string) error {
			if strings.Contains(content, "bad") {
				return errors.New("it said no")
			}
			return nil
		})
		b.source.set("a", "bad", "b", "bad")
		b.after(time.Hour)
		b.want("a=good", "reload: it said no", "a=bad b=bad", "a=bad b=bad", "a=good")
		if s := b.agent.Status(); !s.RolledBack || s.Applied == s.Wanted {
			b.Errorf("status %+v", s)
		}
		b.source.set("a", "better")
		b.after(time.Second)
		b.want("a=better", "", "a=better")
		if b.agent.Status().RolledBack {
			b.Error("still rolled back")
		}
		// What was good is wanted again: there is nothing to do.
		b.source.set("a", "bad")
		b.after(time.Hour)
		b.reload.calls()
		b.source.set("a", "better")
		b.after(time.Second)
		b.want("a=better", "", "a=better")
	})
}

// A probe that fails after the reload counts as a failure: it is tried again, and if it fails once more, the reload too. After enough failures
// the last good set comes back.
func TestRollback_ByTheProbe(t *testing.T) {
	var probe *fakeAction
	run(t, func(b *bench) {
		probe = &fakeAction{dir: b.dir}
		b.config.Rollback, b.config.Probe = 3, probe
	}, func(b *bench) {
		b.source.set("a", "good")
		synctest.Wait()
		b.reload.calls()
		probe.calls()
		probe.will(func(_ context.Context, content string) error {
			if content == "a=bad" {
				return errors.New("not ready")
			}
			return nil
		})
		b.source.set("a", "bad")
		b.after(b.config.Settle)
		b.want("a=bad", "probe: not ready", "a=bad")
		b.after(time.Hour)
		b.want("a=good", "probe: not ready", "a=bad", "a=bad", "a=good")
		if got := probe.calls(); !slices.Equal(got, []string{"a=bad", "a=bad", "a=bad", "a=bad", "a=bad", "a=good"}) {
			b.Errorf("the probe was made with %q", got)
		}
		if n := b.agent.Status().Failures[Probe]; n != 3 {
			b.Errorf("%d failures of the probe", n)
		}
		b.source.set("a", "better")
		b.after(time.Second)
		b.want("a=better", "", "a=better")
	})
}

// An application that takes longer to work than the probe waits is not reloaded again, neither with new content nor with that of before.
func TestProbe_OfASlowApplication(t *testing.T) {
	for name, rollback := range map[string]bool{"new content": false, "the content of before": true} {
		t.Run(name, func(t *testing.T) {
			var probe *fakeAction
			run(t, func(b *bench) {
				probe = &fakeAction{dir: b.dir}
				b.config.Probe = probe
				if rollback {
					b.config.Rollback = 1
				}
			}, func(b *bench) {
				b.source.set("a", "1")
				synctest.Wait()
				began := time.Now()
				slow := func(ctx context.Context, content string) error {
					if err := no(ctx, content); err != nil {
						return err
					}
					if time.Since(began) < 45*time.Second {
						return errors.New("it starts")
					}
					return nil
				}
				b.reload.will(func(context.Context, string) error { began = time.Now(); return nil })
				probe.will(func(ctx context.Context, content string) error {
					err := slow(ctx, content)
					if err != nil && !strings.Contains(content, "bad") {
						<-time.After(30 * time.Second) // as long as it may take
						err = slow(ctx, content)
					}
					return err
				})
				if rollback {
					b.source.set("a", "bad")
					b.after(10 * time.Minute)
					b.want("a=1", "it said no", "a=bad", "a=1")
					if !b.agent.Status().RolledBack {
						b.Error("not rolled back")
					}
					return
				}
				b.source.set("a", "2")
				b.after(10 * time.Minute)
				b.want("a=2", "", "a=2")
			})
		})
	}
}

// no refuses all content that contains "bad".
func no(_ context.Context, content string) error {
	if strings.Contains(content, "bad") {
		return errors.New("it said no")
	}
	return nil
}

// An application that may have read newer content reads the applied content again when the sources return to it.
func TestReturnToApplied(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.reload.will(no)
		b.source.set("a", "bad")
		b.after(time.Second)
		b.want("a=bad", "it said no", "a=bad")
		b.source.set("a", "1")
		b.after(time.Second)
		b.want("a=1", "", "a=1")
		// Also if the reload was interrupted.
		b.reload.will(func(ctx context.Context, content string) error {
			if content == "a=slow" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		b.source.set("a", "slow")
		b.after(time.Minute)
		b.source.set("a", "1")
		b.after(time.Second)
		b.want("a=1", "", "a=slow", "a=1")
		// And if the process ended meanwhile.
		b.source.set("a", "slow")
		b.after(time.Minute)
		b.stop()
		b.source.data = map[string][]byte{"a": []byte("1")}
		b.start()
		b.after(time.Hour)
		b.want("a=1", "", "a=slow", "a=1")
		// Content that was never switched to changes nothing.
		b.source.set("a", "2")
		b.source.set("a", "1")
		b.after(time.Hour)
		b.want("a=1", "")
	})
}

// Content that was refused is tried again when the sources return to it, and comes back as before.
func TestRollback_Again(t *testing.T) {
	run(t, func(b *bench) { b.config.Rollback = 2 }, func(b *bench) {
		if err := os.WriteFile(filepath.Join(b.dir, "foreign"), nil, 0o600); err != nil {
			b.Fatal(err)
		}
		b.source.set("a", "good")
		synctest.Wait()
		b.reload.will(no)
		for range 2 {
			b.source.set("a", "bad")
			b.after(time.Hour)
			b.want("a=good foreign=", "it said no", "a=bad foreign=", "a=bad foreign=", "a=good foreign=")
			b.source.set("foreign", "1") // which cannot be written
			b.after(time.Hour)
			b.want("a=good foreign=", "write: ")
		}
	})
}

// The files that were applied last are loaded again until that succeeds.
func TestRollback_Fails(t *testing.T) {
	run(t, func(b *bench) { b.config.Rollback = 1 }, func(b *bench) {
		b.source.set("a", "good")
		synctest.Wait()
		b.reload.will(func(context.Context, string) error { return errors.New("it is away") })
		b.source.set("a", "bad")
		b.after(time.Second)
		b.want("a=good", "rollback: ", "a=bad", "a=good")
		if b.agent.Status().RolledBack {
			b.Error("rolled back, but the application has not read it")
		}
		// Also the next process knows that the application may not have read it.
		b.source.mu.Lock()
		b.source.data = map[string][]byte{"a": []byte("good")}
		b.source.mu.Unlock()
		b.stop()
		b.reload.calls()
		b.start()
		synctest.Wait()
		b.want("a=good", "it is away", "a=good")
		b.source.set("a", "bad")
		b.after(time.Second)
		b.reload.calls()
		b.reload.will(no)
		b.after(time.Hour)
		b.want("a=good", "reload: it is away", "a=good")
		if s := b.agent.Status(); !s.RolledBack || s.Failures[Rollback] != 1 {
			b.Errorf("status %+v", s)
		}
	})
}

// A rollback does not keep newer content, or the end of the agent, waiting.
func TestRollback_Superseded(t *testing.T) {
	run(t, func(b *bench) { b.config.Rollback = 1 }, func(b *bench) {
		b.source.set("a", "good")
		synctest.Wait()
		b.reload.will(func(ctx context.Context, content string) error {
			if content == "a=good" {
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
				return ctx.Err()
			}
			return no(ctx, content)
		})
		b.source.set("a", "bad")
		b.after(time.Minute)
		b.source.set("a", "better")
		b.after(time.Second)
		b.want("a=better", "", "a=bad", "a=good", "a=better")
	})
}

// Only failures of the reload and the probe count towards a rollback.
func TestRollback_Counts(t *testing.T) {
	run(t, func(b *bench) { b.config.Rollback, b.config.RetryMax = 2, time.Second }, func(b *bench) {
		b.source.set("a", "good")
		synctest.Wait()
		foreign := filepath.Join(b.dir, "b")
		if err := os.WriteFile(foreign, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		b.reload.will(no)
		b.source.set("a", "bad", "b", "bad")
		b.after(time.Minute)
		b.want("a=good b=", "write: ")
		if err := os.Remove(foreign); err != nil {
			b.Fatal(err)
		}
		b.after(time.Minute)
		b.want("a=good", "it said no", "a=bad b=bad", "a=bad b=bad", "a=good")
	})
}

// Environment variables come back too, also if no file has changed with them.
func TestRollback_Environment(t *testing.T) {
	run(t, func(b *bench) {
		b.config.Rollback = 2
		b.config.Sources[0].Env = true
	}, func(b *bench) {
		b.source.set("a", "good")
		synctest.Wait()
		b.reload.will(func(ctx context.Context, _ string) error { return no(ctx, strings.Join(b.agent.Environment(), " ")) })
		b.source.set("a", "bad")
		b.after(time.Hour)
		b.want("", "it said no", "", "", "")
		if got := b.agent.Environment(); !slices.Equal(got, []string{"a=good"}) {
			b.Errorf("environment %q", got)
		}
		if s := b.agent.Status(); !s.RolledBack {
			b.Errorf("status %+v", s)
		}
	})
}
