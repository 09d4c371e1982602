// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
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
