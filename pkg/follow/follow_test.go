// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/configdep/configdep/pkg/follow"
)

// Object reports whether the object exists, and then each of its states.
func TestObject(t *testing.T) {
	for name, tt := range map[string]struct {
		exists bool
		first  []string
	}{
		"the object exists":           {true, []string{"present 0"}},
		"the object is created later": {false, []string{"absent"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				configMap := func(name, value string) *corev1.ConfigMap {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": value}}
				}
				client := fake.NewClientset()
				objects := client.CoreV1().ConfigMaps("ns")
				must := func(_ any, err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if tt.exists {
					must(objects.Create(t.Context(), configMap("one", "0"), metav1.CreateOptions{}))
				}
				var got []string
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					follow.Object[*corev1.ConfigMap, *corev1.ConfigMapList]{
						Name: "one", Client: client, List: objects.List, Watch: objects.Watch,
						Present: func(o *corev1.ConfigMap) { got = append(got, "present "+o.Data["k"]) },
						Absent:  func() { got = append(got, "absent") },
					}.Run(ctx)
				})
				synctest.Wait()
				if diff := cmp.Diff(tt.first, got); diff != "" {
					t.Fatalf("calls at the start (-want +got):\n%s", diff)
				}
				got = nil
				if !tt.exists {
					must(objects.Create(t.Context(), configMap("one", "0"), metav1.CreateOptions{}))
				}
				must(objects.Update(t.Context(), configMap("one", "1"), metav1.UpdateOptions{}))
				must(nil, objects.Delete(t.Context(), "one", metav1.DeleteOptions{}))
				cancel()
				running.Wait()
				want := []string{"present 1", "absent"}
				if !tt.exists {
					want = append([]string{"present 0"}, want...)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("afterwards (-want +got):\n%s", diff)
				}
			})
		})
	}
}
