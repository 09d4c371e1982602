// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/kind"
	configdepmetrics "github.com/configdep/configdep/pkg/metrics"
)

// An array grows by at least a quarter, and the old one is in memory until it has been copied.
func TestOfElement(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(x reflect.Type) {
		if seen[x] {
			return
		}
		seen[x] = true
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			if size := x.Elem().Size() * 9 / 4; size > ofElement {
				t.Errorf("a %s of %s takes %d bytes per element", x.Kind(), x.Elem(), size)
			}
			look(x.Elem())
		case reflect.Struct:
			for f := range x.Fields() {
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[corev1.PodTemplateSpec]())
	if len(seen) < 100 {
		t.Errorf("checked %d types", len(seen))
	}
}

// aDeployment returns a request to create a Deployment that has opted in, as JSON.
func aDeployment(rest string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
		"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "namespace": "shop", %s}}`, rest)
}

// full repeats a text until a request has the maximum size.
func full(format, repeated string) []byte {
	n := (maxBody - len(aDeployment(format))) / len(repeated)
	return aDeployment(fmt.Sprintf(format, strings.Repeat(repeated, n)))
}

func send(handler http.Handler, body []byte) *httptest.ResponseRecorder {
	made := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
	made.Header.Set("Content-Type", "application/json")
	made = made.WithContext(klog.NewContext(made.Context(), klog.Logger{}))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, made)
	return recorder
}

// Memory is limited, however many of the worst requests arrive at the same time.
func TestHandler_BoundsMemory(t *testing.T) {
	const most = 64 << 20
	some := decoding / ofElement / 2 // elements that are decoded
	inTemplate := func(text string) []byte {
		return aDeployment(`"object": {"metadata": {"annotations": {"configdep.io/reload": "auto"}}, "spec": {"template": {"spec": {` + text + `}}}}`)
	}
	bodies := map[string][]byte{
		"containers that are numbers, too many": full(`"object": {"spec": {"template": {"spec": {"containers": [%s 0]}}}}`, "0,"),
		"containers that are nothing":           inTemplate(`"containers": [` + strings.Repeat("null,", some) + `null]`),
		"containers that are numbers":           inTemplate(`"containers": [` + strings.Repeat("0,", some) + `0]`),
		"volumes that are empty":                inTemplate(`"volumes": [` + strings.Repeat("{},", some/2) + `{}]`),
		"arguments":                             full(`"object": {"spec": {"template": {"spec": {"containers": [{"args": [%s ""]}]}}}}`, `"",`),
		"an unknown field":                      full(`"object": {"spec": {"template": {"other": [%s 0]}}}`, "0,"),
		"owners":                                full(`"object": {"metadata": {"ownerReferences": [%s 0]}, "spec": {"template": {}}}`, "0,"),
		"managed fields":                        full(`"object": {"metadata": {"managedFields": [%s {}]}, "spec": {"template": {}}}`, "{},"),
		"conditions":                            full(`"object": {"status": {"conditions": [%s {}]}, "spec": {"template": {}}}`, "{},"),
		"annotations":                           full(`"object": {"metadata": {"annotations": {%s "a": ""}}, "spec": {"template": {}}}`, `"a": "",`),
		"groups of the user":                    full(`"userInfo": {"groups": [%s ""]}, "object": {}`, `"",`),
		"options":                               full(`"options": {"dryRun": [%s ""]}, "object": {}`, `"",`),
		"a long text":                           full(`"object": {"metadata": {"annotations": {"a": "%s"}}, "spec": {"template": {"spec": {"nodeName": "x"}}}}`, "aaaa"),
		"a long name of a kind":                 full(`"resource": "%s", "object": {}`, "aaaa"),
		"lists in lists":                        full(`"object": {"spec": {"template": {"other": [%s 0]}}}`, "[],"),
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // so that what is allocated is hardly more than what is in use
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			handler := newCluster(t, secret("db", "password", "x")).handler()
			handler.patience = 200 * time.Millisecond // waiting requests use no memory
			runtime.GC()
			before := heap()
			var wg sync.WaitGroup
			done := make(chan struct{})
			for range 100 {
				wg.Go(func() { send(handler, body) })
			}
			go func() {
				wg.Wait()
				close(done)
			}()
			peak := uint64(0)
			for tick := time.NewTicker(time.Millisecond); ; {
				peak = max(peak, heap())
				select {
				case <-tick.C:
					continue
				case <-done:
				}
				tick.Stop()
				break
			}
			t.Logf("%d bytes, %d MB more at the peak", len(body), int64(peak-before)>>20)
			if peak > before+most {
				t.Errorf("100 requests of %d bytes took %d MB", len(body), (peak-before)>>20)
			}
		})
	}
}

func heap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// Strings from unauthenticated callers do not become label values.
func TestHandler_LabelsAreFixed(t *testing.T) {
	configdepmetrics.Register()
	handler := newCluster(t).handler()
	for _, operation := range []string{"CONNECT", "DELETE", strings.Repeat("x", 1<<20), "create"} {
		send(handler, bytes.Replace(aDeployment(`"object": {"spec": {"template": {}}}`), []byte("CREATE"), []byte(operation), 1))
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, family := range families {
		if family.GetName() != "configdep_webhook_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() != "operation" {
					continue
				}
				seen++
				switch label.GetValue() {
				case "", string(admissionv1.Create), string(admissionv1.Update):
				default:
					t.Errorf("label value = %.20q", label.GetValue())
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no request was counted")
	}
}

// Unauthenticated callers cannot fill the log: lines are short, and their rate is limited.
func TestHandler_BoundsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that the time stands still
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
		handler := newCluster(t).handler()
		for i, rest := range []string{
			`"object": {"spec": {"replicas": "x", "paused": ` + strings.Repeat("1", 1<<20) + `}}`,
			`"object": {"spec": {"template": {"spec": {"containers": ` + strings.Repeat("1", 1<<20) + `}}}}`,
			`"name": "` + strings.Repeat("x", 1<<20) + `"`,
		} {
			for range 5 {
				made := httptest.NewRequestWithContext(klog.NewContext(t.Context(), logger), http.MethodPost, Path, bytes.NewReader(aDeployment(rest)))
				made.Header.Set("Content-Type", "application/json")
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, made)
				if n := recorder.Body.Len(); n > 2*maxText {
					t.Errorf("response %d has %d bytes", i, n)
				}
			}
		}
		entries := logger.GetSink().(ktesting.Underlier).GetBuffer().Data() //nolint:forcetypeassert // always of this type
		if len(entries) == 0 || len(entries) > 10 {
			t.Errorf("got %d log lines", len(entries))
		}
		for _, entry := range entries {
			if line := fmt.Sprint(entry); len(line) > 2*maxText {
				t.Errorf("got a log line of %d bytes: %.100s", len(line), line)
			}
		}
	})
}

// Absent sources are looked up with a rate limit for all callers together.
func TestHandler_BoundsLookUps(t *testing.T) {
	c, now := newCluster(t), clocktesting.NewFakePassiveClock(time.Now())
	handler := c.handler()
	handler.Clock = now
	body := aDeployment(`"object": {"metadata": {"annotations": {"configdep.io/reload": "auto"}}, "spec": {"template": {"spec": {"containers": [
		{"envFrom": [{"secretRef": {"name": "a"}}, {"secretRef": {"name": "b"}}]}]}}}}`)
	for range findBurst {
		send(handler, body)
	}
	if c.finds.Load() != findBurst {
		t.Errorf("looked up %d sources at once", c.finds.Load())
	}
	now.SetTime(now.Now().Add(time.Second))
	for range findBurst {
		send(handler, body)
	}
	if c.finds.Load() != findBurst+findRate {
		t.Errorf("looked up %d sources a second later", c.finds.Load()-findBurst)
	}
}

// A host that sends as much as allowed leaves room for others.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(bodies, bodiesOfHost)
		release, err := s.acquire(t.Context(), "stranger", bodiesOfHost)
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			again, err := s.acquire(t.Context(), "stranger", 1)
			if err == nil {
				again()
			}
			waits <- err
		}()
		synctest.Wait()
		other, err := s.acquire(t.Context(), "kube-apiserver", bodiesOfHost)
		if err != nil {
			t.Fatal(err)
		}
		if len(waits) != 0 {
			t.Error("a host got more than its share")
		}
		release()
		if err := <-waits; err != nil {
			t.Error(err)
		}
		other()
		if len(s.hosts) != 0 || !s.all.TryAcquire(bodies) {
			t.Errorf("%d hosts are remembered, or not everything was released", len(s.hosts))
		}
	})
}

// Reading a workload in parts has the same result as reading it as a whole.
func TestReadWorkload(t *testing.T) {
	text := deployment("app:1", optedIn, `"configdep.io/config-hash": "x"`)
	shape, err := readShape(kind.Table(nil).Of(kind.Deployment), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w, err := readWorkload(nil, kind.Table(nil).Of(kind.Deployment), nil, "shop", "web", shape)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.References) != 1 || w.References[0].Name != "db" || w.Namespace != "shop" || w.Name != "web" || w.Kind != kind.Deployment ||
		w.Annotations["configdep.io/reload"] != "auto" || w.Marks.TemplateHash != "x" {
		t.Errorf("workload = %+v", w.Workload)
	}
}

// A host whose requests use its whole share for decoding leaves room for others.
func TestHandler_DecodingLeavesRoom(t *testing.T) {
	handler := newCluster(t, secret("db", "password", "x")).handler()
	handler.patience = 100 * time.Millisecond // waiting requests are refused
	release, err := handler.decoding.acquire(t.Context(), "stranger", decodingOfHost)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	body := aDeployment(`"object": {"metadata": {"annotations": {"configdep.io/reload": "auto"}}, "spec": {"template": {"spec": {"containers": [
		{"envFrom": [{"secretRef": {"name": "db"}}]}]}}}}`)
	for host, want := range map[string]int{"stranger": http.StatusServiceUnavailable, "kube-apiserver": http.StatusOK} {
		made := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
		made.RemoteAddr = host + ":1"
		made.Header.Set("Content-Type", "application/json")
		made = made.WithContext(klog.NewContext(made.Context(), klog.Logger{}))
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, made)
		if recorder.Code != want {
			t.Errorf("status for %s = %d, want %d: %s", host, recorder.Code, want, recorder.Body)
		}
	}
}
