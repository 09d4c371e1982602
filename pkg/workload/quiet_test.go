// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// rollout is a kind of custom resources.
func rollout(t *testing.T) *kind.Kind {
	t.Helper()
	table, err := kind.NewTable([]string{"argo-rollout"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table.Of("Rollout")
}

const secret = "s3cr3t"

// Neither errors nor warnings of the API server on objects whose fields can be set are passed on: they may quote values. Those on others are.
//
//nolint:paralleltest // klog has one output
func TestPatch_Quiet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "the key `+secret+` is weak"`)
		w.Header().Set("Content-Type", "application/json")
		answer := any(&metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "7"},
		})
		if strings.HasSuffix(r.URL.Path, "/denied") {
			refused := apierrors.NewInvalid(rollout(t).GroupVersionKind().GroupKind(), "web", nil).ErrStatus
			refused.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			refused.Message, refused.Details.Causes = secret, []metav1.StatusCause{{Message: secret}}
			refused.Details.RetryAfterSeconds = 3
			answer = &refused
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := NewClient(&rest.Config{Host: server.URL, QPS: -1}, fake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer func() {
		klog.LogToStderr(true)
		klog.SetOutput(os.Stderr)
	}()
	for _, quiet := range []bool{true, false} {
		k := rollout(t)
		k.Traits.Fields = quiet
		client.Kinds = kind.Table{k}
		log.Reset()
		key := dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}
		if o, err := Patch(t.Context(), client, key, []byte("{}"), nil); err != nil || o.GetResourceVersion() != "7" {
			t.Fatalf("patched = %v, %v", o, err)
		}
		klog.Flush()
		if strings.Contains(log.String(), secret) == quiet {
			t.Errorf("fields = %t: log = %q", quiet, log.String())
		}
		key.Name = "denied"
		_, err := Patch(t.Context(), client, key, []byte("{}"), nil)
		if !apierrors.IsInvalid(err) || strings.Contains(err.Error(), secret) == quiet {
			t.Errorf("fields = %t: error = %v", quiet, err)
		}
		if after, found := apierrors.SuggestsClientDelay(err); after != 3 || !found {
			t.Errorf("fields = %t: retry after %d, %t", quiet, after, found)
		}
	}
}

func TestQuiet(t *testing.T) {
	err := Quiet("reading it", apierrors.NewNotFound(rollout(t).Resource.GroupResource(), secret))
	if !apierrors.IsNotFound(err) || err.Error() != "reading it failed: Not Found" {
		t.Errorf("error = %v", err)
	}
	err = Quiet("reading it", apierrors.FromObject(&metav1.Status{Code: http.StatusTeapot, Message: secret}))
	if err.Error() != "reading it failed: I'm a teapot" || strings.Contains(err.Error(), secret) {
		t.Errorf("error = %v", err)
	}
	for message, want := range map[string]string{
		`admission webhook "x.example.com" denied the request: ` + secret:                                                   ` (denied by admission webhook "x.example.com")`,
		`rollouts.argoproj.io "web" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: ` + secret: ` (denied by ValidatingAdmissionPolicy 'x')`,
		`admission webhook "x" denied the request: ` + secret + ` admission webhook "` + secret + `" denied the request`:    ` (denied by admission webhook "x")`,
		secret + `: admission webhook "` + secret + `" denied the request`:                                                  "",
		`admission webhook "X ` + secret + `" denied the request`:                                                           "",
	} {
		err := Quiet("changing it", apierrors.FromObject(&metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}))
		if got := "changing it failed: Forbidden" + want; err.Error() != got || !apierrors.IsForbidden(err) {
			t.Errorf("error = %v, want %s", err, got)
		}
	}
	if err := Quiet("reading it", errors.Join(io.EOF, errors.New(secret))); err.Error() != "reading it failed without an answer of the API server" {
		t.Errorf("error = %v", err)
	}
}
