// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// maxBody is the largest request that the webhook reads.
const maxBody = 6 << 20

func aDeployment(namespace, rest string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
		"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "namespace": %q, %s}}`, namespace, rest)
}

func full(format, repeated string) []byte {
	return aDeployment("shop", fmt.Sprintf(format, strings.Repeat(repeated, (maxBody-1000)/len(repeated))))
}

func (a *arena) pod(t *testing.T) {
	o, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// A stranger does not know the path. The limits below also hold for one who does.
	path := *o.Webhooks[0].ClientConfig.Service.Path
	c := a.stranger(t)
	question := aDeployment("neighbour", `"object": {"metadata": {"annotations": {"configdep.io/reload": "auto"}},
		"spec": {"template": {"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "db"}}]}]}}}}`)

	t.Run("other paths reveal nothing", func(t *testing.T) {
		if code, answer := a.post(t.Context(), c, path, question); code != http.StatusOK || !strings.Contains(answer, `"patch"`) {
			t.Fatalf("at the right path, answer = %d: %s, want 200 with a patch", code, answer)
		}
		for _, guess := range []string{"/", admission.Path, admission.Path + "/", admission.Path + "/x", path[:len(path)-1], path + "x", path + "/../workloads"} {
			if code, answer := a.post(t.Context(), c, guess, question); code != http.StatusNotFound || strings.Contains(answer, "configdep") {
				t.Errorf("answer at %s = %d: %s, want 404 that does not name configdep", guess, code, answer)
			}
		}
	})

	log := func() int64 {
		info, err := os.Stat(a.replica.Log())
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	logged := log()
	together := func(ctx context.Context, n int, path string, body []byte) {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { a.post(ctx, c, path, body) })
		}
		wg.Wait()
	}
	elements := strings.Repeat("0,", 12_000)
	attacks := map[string][]byte{
		"containers that are numbers": aDeployment("shop", `"object": {"spec": {"template": {"spec": {"containers": [`+elements+`0]}}}}`),
		"arguments":                   full(`"object": {"spec": {"template": {"spec": {"containers": [{"args": [%s ""]}]}}}}`, `"",`),
		"unknown fields":              full(`"object": {"spec": {"template": {"other": [%s 0]}}}`, "0,"),
		"annotations":                 full(`"object": {"metadata": {"annotations": {%s "a": ""}}, "spec": {"template": {}}}`, `"a": "",`),
		"a long operation":            []byte(strings.Replace(string(full(`"object": {}, "other": "%s"`, "x")), "CREATE", strings.Repeat("y", 1<<20), 1)),
		"a long number":               full(`"object": {"spec": {"paused": %s}}`, "1"),
		"a long name":                 full(`"name": "%s"`, "x"),
		"another namespace":           aDeployment("x/../kube-system", `"object": {}`),
		"not JSON":                    []byte("\x16\x03"),
	}
	for name, body := range attacks {
		t.Run(name, func(t *testing.T) {
			a.takes(t, 64<<20, func() { together(t.Context(), 100, path, body) })
			a.takes(t, 64<<20, func() { together(t.Context(), 100, admission.Path, body) })
		})
	}
	t.Run("all bodies, repeatedly", func(t *testing.T) {
		a.takes(t, 128<<20, func() {
			a.during(t, func(ctx context.Context) {
				for _, body := range attacks {
					together(ctx, 20, path, body)
				}
			})
		})
	})
	t.Run("many connections with incomplete bodies", func(t *testing.T) {
		a.takes(t, 64<<20, func() {
			for range 300 {
				connection := a.dialAsStranger(t)
				if connection == nil {
					continue
				}
				_, _ = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", path, maxBody)
			}
			a.during(t, func(ctx context.Context) { together(ctx, 10, path, question) })
		})
		// kube-apiserver is still served: a new workload gets its hash.
		d := deployment("stamped", "db")
		made, err := client.AppsV1().Deployments(a.neighbour.namespace).Create(t.Context(), d, metav1.CreateOptions{})
		if err != nil || made.Annotations["configdep.io/config-hash"] == "" {
			t.Errorf("creating a workload: error = %v, annotations = %v, want the config hash", err, made.Annotations)
		}
	})
	for name, request := range map[string]string{"unknown path": "POST /x", "wrong method": "GET " + path} {
		t.Run("a missing body, "+name, func(t *testing.T) {
			await.Until(t, "the server has closed the connection", func(context.Context) error {
				connection := a.dialAsStranger(t)
				if connection == nil {
					return errors.New("the connection was refused")
				}
				if err := connection.SetDeadline(time.Now().Add(await.Limit)); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(connection, "%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", request); err != nil {
					return err
				}
				answer, err := io.ReadAll(connection)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
					return fmt.Errorf("answer = %q (%w), want a 4xx status", answer, err)
				}
				return nil
			})
		})
	}
	t.Run("large headers", func(t *testing.T) {
		await.Until(t, "earlier connections have ended, and large headers are rejected", func(context.Context) error {
			connection := a.dialAsStranger(t)
			if connection == nil {
				return errors.New("the connection was refused")
			}
			go func() {
				_, _ = io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
			}()
			answer := make([]byte, 100)
			n, _ := io.ReadFull(connection, answer)
			if !strings.Contains(string(answer[:n]), "431") {
				return fmt.Errorf("answer = %s, want 431", answer[:n])
			}
			return nil
		})
	})
	if grown := log() - logged; grown > 1<<20 {
		t.Errorf("the log has grown by %d bytes, want at most 1 MiB", grown)
	}
	a.checkMetrics(t)
}

// checkMetrics checks that requests of strangers have not added time series.
func (a *arena) checkMetrics(t *testing.T) {
	t.Helper()
	metrics, err := a.metrics(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(metrics) > 2<<20 {
		t.Errorf("/metrics has %d bytes, want at most 2 MiB", len(metrics))
	}
	series := 0
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "configdep_webhook_requests_total{") {
			series++
		}
		if len(line) > 2000 {
			t.Errorf("a line of /metrics is too long: %.100s", line)
		}
	}
	if series == 0 || series > 3*8 {
		t.Errorf("configdep_webhook_requests_total has %d series, want 1 to 24", series)
	}
}
