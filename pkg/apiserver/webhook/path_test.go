// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/dependency"
)

func digesterOf(b byte) *dependency.Digester {
	key := make([]byte, dependency.KeySize)
	key[0] = b
	return dependency.NewDigester(key)
}

// Replicas with the same key serve at the same path, at the path of the previous key for some minutes or until another key
// comes, and at no other.
func TestWebhookPath_FollowsTheKey(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Now())
	p, other := &path{configuration: "configdep", clock: now}, &path{configuration: "configdep", clock: now}
	served := func(path string) bool {
		recorder := httptest.NewRecorder()
		p.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, nil))
		return recorder.Code == http.StatusOK
	}
	if served(admission.Path) || served("/") || served(admission.Path+"/") || p.current() != "" {
		t.Error("something is served before the key is known")
	}
	var paths []string
	for i := range byte(3) {
		p.follow(digesterOf(i))
		other.follow(digesterOf(i))
		paths = append(paths, p.current())
		if p.current() != other.current() || len(p.current()) < len(admission.Path)+40 {
			t.Errorf("the paths are %s and %s", p.current(), other.current())
		}
	}
	if served(paths[0]) || !served(paths[1]) || !served(paths[2]) || paths[1] == paths[2] {
		t.Errorf("of %v are served: %v, %v, %v", paths, served(paths[0]), served(paths[1]), served(paths[2]))
	}
	for _, path := range paths {
		if wrong := webhookutil.ValidateWebhookService(field.NewPath("service"), "configdep-apiserver", "configdep-system", &path, 443); len(wrong) > 0 {
			t.Errorf("kube-apiserver does not take this path: %v", wrong)
		}
	}
	if served(admission.Path) || served(strings.ToUpper(paths[2])) || served(paths[2]+"x") {
		t.Error("another path is served")
	}
	now.SetTime(now.Now().Add(previousPath - time.Second))
	p.follow(digesterOf(2)) // the same key, read again
	if !served(paths[1]) || !served(paths[2]) {
		t.Errorf("before the previous path ends, are served: %v, %v", served(paths[1]), served(paths[2]))
	}
	now.SetTime(now.Now().Add(time.Second))
	if served(paths[1]) || !served(paths[2]) {
		t.Errorf("when the previous path has ended, are served: %v, %v", served(paths[1]), served(paths[2]))
	}
	if open := (&path{}); !open.served(admission.Path) || open.served(paths[2]) {
		t.Error("without a configuration, the path is not the one that all know")
	}
}

func TestPathPatch(t *testing.T) {
	webhook := func(path *string) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: path}}}
	}
	byURL := admissionregistrationv1.MutatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://elsewhere")}}
	o := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{webhook(nil), byURL, webhook(new("/right")), webhook(new("/wrong"))},
	}
	const want = `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},` +
		`{"op":"add","path":"/webhooks/0/clientConfig/service/path","value":"/right"},` +
		`{"op":"add","path":"/webhooks/3/clientConfig/service/path","value":"/right"}]`
	if patch, err := pathPatch(o, "/right"); err != nil || string(patch) != want {
		t.Errorf("the patch is %s, %v", patch, err)
	}
	if patch, err := pathPatch(o, ""); err != nil || patch != nil {
		t.Errorf("as long as no path is known, the patch is %s, %v", patch, err)
	}
	o.Webhooks = o.Webhooks[1:3]
	if patch, err := pathPatch(o, "/right"); err != nil || patch != nil {
		t.Errorf("where all is right, the patch is %s, %v", patch, err)
	}
}

// leading is a webhook configuration, and a replica that leads and keeps the path in it.
type leading struct {
	t      *testing.T
	client *fake.Clientset
	stop   func()
}

func lead(t *testing.T) *leading {
	t.Helper()
	client := fake.NewClientset(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "configdep", ResourceVersion: "1"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "w", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{}}},
		},
	})
	p := &path{client: client, configuration: "configdep", clock: clock.RealClock{}}
	p.follow(digesterOf(1))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.lead(ctx) })
	return &leading{t, client, func() { cancel(); running.Wait() }}
}

func (l *leading) configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	l.t.Helper()
	o, err := l.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(l.t.Context(), "configdep", metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

func (l *leading) hasPath() bool {
	l.t.Helper()
	return l.configuration().Webhooks[0].ClientConfig.Service.Path != nil
}

// write changes the configuration as another client does, and waits until that has been seen.
func (l *leading) write(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
	l.t.Helper()
	o := l.configuration()
	version, _ := strconv.Atoi(o.ResourceVersion)
	o.ResourceVersion = strconv.Itoa(version + 1)
	change(o)
	if _, err := l.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(l.t.Context(), o, metav1.UpdateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	synctest.Wait()
}

// pass lets time pass, that of the bubble of synctest: it moves when all goroutines of the test are blocked, so that the
// test waits for none, and nothing depends on how fast the machine is. Then all of them do what is due.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // see above
	synctest.Wait()
}

func withoutPath(o *admissionregistrationv1.MutatingWebhookConfiguration) {
	o.Webhooks[0].ClientConfig.Service.Path = nil
}

// Writes of other clients that leave the path alone, as of one that keeps a label, do not delay its return after one that
// removes it.
func TestWebhookPath_ReturnsAfterManyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t)
		defer l.stop()
		pass(time.Second)
		if !l.hasPath() {
			t.Fatal("the path is not there")
		}
		for i := range 100 {
			l.write(func(o *admissionregistrationv1.MutatingWebhookConfiguration) {
				o.Labels = map[string]string{"n": strconv.Itoa(i)}
			})
		}
		pass(10 * time.Second) // whatever was queued is done
		l.write(withoutPath)
		pass(time.Second)
		if !l.hasPath() {
			t.Error("the path is not back after a second")
		}
	})
}

// While another client keeps removing the path, it is written a few times at once, and then every five seconds.
func TestWebhookPath_DoesNotRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t)
		defer l.stop()
		returned := 0
		for range 600 {
			pass(100 * time.Millisecond)
			if l.hasPath() {
				returned++
				l.write(withoutPath)
			}
		}
		if returned < 20 || returned > 23 {
			t.Errorf("within a minute, the path is written %d times, want 10 at once and 12 more", returned)
		}
	})
}
