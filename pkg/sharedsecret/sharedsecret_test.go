// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package sharedsecret_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/sharedsecret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const home, name = "configdep-system", "shared"

func empty() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}}
}

func quiet(t *testing.T) context.Context {
	t.Helper()
	return klog.NewContext(t.Context(), klog.Logger{})
}

// A replica that starts may fill an empty Secret at once, but a Secret that has just been created only after the
// time that others have to restore its content.
func TestSecret_Load(t *testing.T) {
	for what, tt := range map[string]struct {
		missingFor time.Duration
		fill       time.Duration // how long after it has seen the Secret a replica may fill it
	}{
		"the Secret exists":                    {0, 0},
		"the Secret is created after a minute": {time.Minute, sharedsecret.Patience},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, begun := fake.NewClientset(), time.Now()
				time.AfterFunc(tt.missingFor, func() {
					if err := client.Tracker().Add(empty()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				s := sharedsecret.New(client, home, name, "what is shared")
				var seen, fill time.Duration = -1, -1
				err := s.Load(quiet(t), func(ctx context.Context, mayFill bool) error {
					_, err := s.Get(ctx)
					if missing := errors.Is(err, sharedsecret.ErrMissing); missing != s.Missing() {
						t.Errorf("after %v: error %v, Missing = %v", time.Since(begun), err, s.Missing())
					}
					if err != nil {
						return err
					}
					if seen < 0 {
						seen = time.Since(begun)
					}
					if !mayFill {
						return errors.New("empty")
					}
					fill = time.Since(begun)
					return nil
				})
				const late = 12 * time.Second // between two tries
				if err != nil || seen < tt.missingFor || seen > tt.missingFor+late {
					t.Errorf("error %v, Secret seen after %v", err, seen)
				}
				if fill -= seen; fill < tt.fill || fill > tt.fill+late {
					t.Errorf("mayFill after %v, want %v", fill, tt.fill)
				}
			})
		})
	}
}

// Missing content of the Secret is restored, with retries on failure, but not while the Secret does not exist, and
// no faster than the rate limit if another program keeps removing it.
func TestSecret_Keep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(empty())
		s := sharedsecret.New(client, home, name, "what is shared")
		secrets := client.CoreV1().Secrets(home)
		var told []string
		var answers []error
		repairs := 0
		ctx, cancel := context.WithCancel(quiet(t))
		var running sync.WaitGroup
		running.Go(func() {
			s.Keep(ctx, func(secret *corev1.Secret) {
				told = append(told, fmt.Sprintf("%s of %q", secret.Name, secret.Data["k"]))
			},
				func(err error) { told = append(told, fmt.Sprint(errors.Is(err, sharedsecret.ErrMissing))) },
				func(context.Context) error {
					repairs++
					if len(answers) == 0 {
						return nil
					}
					answer := answers[0]
					answers = answers[1:]
					return answer
				})
		})
		expect := func(why string, n int) {
			t.Helper()
			synctest.Wait()
			if repairs != n {
				t.Fatalf("%s: %d repairs, want %d", why, repairs, n)
			}
			repairs = 0
		}
		expect("before Lacks", 0)
		answers = []error{apierrors.NewConflict(corev1.Resource("secrets"), name, nil), errors.New("connection refused")}
		s.Lacks()
		<-time.After(time.Minute)
		expect("after two failed repairs", 3)
		answers = []error{sharedsecret.ErrMissing}
		s.Lacks()
		<-time.After(time.Hour)
		expect("while the Secret does not exist", 1)
		for range 100 {
			s.Lacks()
			synctest.Wait()
		}
		expect("after 100 calls of Lacks at once", 10)
		if err := s.Update(ctx, empty(), func(secret *corev1.Secret) { secret.Data = map[string][]byte{"k": []byte("v")} }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := secrets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{`shared of ""`, `shared of "v"`, "true"}, told); diff != "" || !s.Missing() {
			t.Errorf("Missing = %v, calls (-want +got):\n%s", s.Missing(), diff)
		}
		cancel()
		running.Wait()
	})
}
