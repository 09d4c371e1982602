// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The server is registered once a replica is ready. What other clients change is repaired and reported; a new CA and a
// deletion are not reported.
func TestRegistration(t *testing.T) {
	one := []byte(next(t, usual, Content{}, time.Now()).Bundle)
	two := []byte(next(t, usual, Content{}, time.Now()).Bundle)
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic()
		ready, repaired := make(chan struct{}), 0
		r := registration
		r.Ready = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-ready:
			}
			return ctx.Err()
		}
		r.Repaired = func(*unstructured.Unstructured) { repaired++ }
		b := NewBundles(client, Targets{APIService: r})
		b.Set(two)
		background(t, b.Run)
		check := func(when, want string, wantPatches, wantRepaired int) {
			t.Helper()
			synctest.Wait()
			got, err := client.Resource(APIServices).Get(t.Context(), ours, metav1.GetOptions{})
			if want == "" && apierrors.IsNotFound(err) {
				err = nil
			} else if err == nil {
				for _, field := range []string{"uid", "resourceVersion"} { // with which it is bound to what was seen
					unstructured.RemoveNestedField(got.Object, "metadata", field)
				}
				if diff := cmp.Diff(apiService(want), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if n := patches(client); n != wantPatches || repaired != wantRepaired {
				t.Errorf("%s, there were %d patches and %d repairs, want %d and %d", when, n, repaired, wantPatches, wantRepaired)
			}
		}
		replace := func(o *unstructured.Unstructured) {
			t.Helper()
			if _, err := client.Resource(APIServices).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		encode := base64.StdEncoding.EncodeToString
		check("before a replica is ready", "", 0, 0)
		b.Set(one)
		close(ready)
		check("once a replica is ready", encode(one), 1, 0)
		b.Set(two)
		check("with another CA", encode(two), 2, 0)
		if bound := bindings(client); !slices.Equal(bound, []bool{false, true}) {
			t.Errorf("patches that are bound to what was seen: %v, want the second, which is no creation", bound)
		}
		redirected := apiService(encode(two))
		if err := unstructured.SetNestedField(redirected.Object, "other", "spec", "service", "name"); err != nil {
			t.Fatal(err)
		}
		replace(redirected)
		check("after a change of the Service", encode(two), 3, 1)
		insecure := apiService(encode(two))
		if err := unstructured.SetNestedField(insecure.Object, true, "spec", "insecureSkipTLSVerify"); err != nil {
			t.Fatal(err)
		}
		replace(insecure)
		check("after verification was switched off", encode(two), 4, 2)
		orphan := apiService(encode(two))
		orphan.SetOwnerReferences(nil)
		replace(orphan)
		check("after it has lost its owner", encode(two), 5, 3)
		stolen := apiService(encode(two))
		stolen.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "another", UID: "2"}})
		replace(stolen)
		check("after it got another owner", encode(two), 6, 4)
		if err := client.Resource(APIServices).Delete(t.Context(), ours, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("after a deletion", encode(two), 7, 4)
	})
}

// bindings returns for each patch whether it has the version of the object.
func bindings(client *dynamicfake.FakeDynamicClient) (bound []bool) {
	for _, a := range client.Actions() {
		if p, is := a.(clienttesting.PatchAction); is {
			bound = append(bound, strings.Contains(string(p.GetPatch()), `"resourceVersion"`))
		}
	}
	return bound
}
