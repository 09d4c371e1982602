// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// customClient returns a client with a custom resource named web in the namespace shop, and other objects.
func customClient(t *testing.T, k *kind.Kind, text string, objects ...runtime.Object) Client {
	t.Helper()
	content := map[string]any{}
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(k.GroupVersionKind())
	o.SetNamespace("shop")
	o.SetName("web")
	o.SetUID("web-uid")
	lists := map[schema.GroupVersionResource]string{k.Served(): k.GroupVersionKind().Kind + "List"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme.Scheme, lists)
	if err := client.Tracker().Create(k.Served(), o, "shop"); err != nil {
		t.Fatal(err)
	}
	return Client{Interface: fake.NewClientset(objects...), Objects: live{client, nil, nil}, Kinds: kind.Table{k}}
}

func TestSelect_CustomResources(t *testing.T) {
	labels := func(more ...string) map[string]string {
		out := map[string]string{"app": "web"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	set := func(name, hash string, owner types.UID) *appsv1.ReplicaSet {
		o := &appsv1.ReplicaSet{ObjectMeta: meta(name, labels("rollouts-pod-template-hash", hash), owner)}
		o.CreationTimestamp = metav1.Unix(1000, 0)
		return o
	}
	reused := set("new", "n", "web-uid")
	reused.Annotations = map[string]string{"rollout.argoproj.io/revision-history": "1"}
	const hash = "rollouts-pod-template-hash"
	rollout := `{"spec":{"selector":{"matchLabels":{"app":"web"}}},"status":{"currentPodHash":"n"}}`
	for name, tt := range map[string]struct {
		preset   string
		object   string
		objects  []runtime.Object
		pods     []string // those of the current revision have a +
		reused   bool
		revision string
		created  time.Time
	}{
		"of the ReplicaSets of a Rollout": {
			"argo-rollout", rollout,
			[]runtime.Object{
				set("new", "n", "web-uid"), set("old", "o", "web-uid"), set("other", "n", "other-uid"),
				pod("a", labels(hash, "n"), "new-uid"), pod("b", labels(hash, "o"), "old-uid"), pod("c", labels(hash, "n"), "other-uid"), pod("d", labels(), "web-uid"),
			},
			[]string{"a+", "b"}, false, "n", time.Unix(1000, 0),
		},
		"of a ReplicaSet that is used again": {
			"argo-rollout", rollout, []runtime.Object{reused, pod("a", labels(hash, "n"), "new-uid")}, []string{"a+"}, true, "n", time.Unix(1000, 0),
		},
		"of a Rollout that is not observed": {
			"argo-rollout", `{"metadata":{"generation":2},"spec":{"selector":{"matchLabels":{"app":"web"}}},"status":{"currentPodHash":"n","observedGeneration":"1"}}`,
			[]runtime.Object{set("new", "n", "web-uid"), pod("a", labels(hash, "n"), "new-uid")}, []string{"a+"}, false, "", time.Time{},
		},
		"its own, with a revision": {
			"kruise-statefulset", `{"spec":{"selector":{"matchLabels":{"app":"web"}}},"status":{"updateRevision":"web-b"}}`,
			[]runtime.Object{
				pod("a", labels("controller-revision-hash", "web-a"), "web-uid"), pod("b", labels("controller-revision-hash", "web-b"), "web-uid"),
				pod("c", labels("controller-revision-hash", "web-b"), "other-uid"), pod("d", labels(), ""),
			},
			[]string{"a", "b+"}, false, "web-b", time.Time{},
		},
		"its own, without one": {
			"kruise-cloneset", `{"spec":{"selector":{"matchLabels":{"app":"web"}}}}`,
			[]runtime.Object{pod("a", labels(), "web-uid"), pod("b", nil, "web-uid"), finished(pod("c", labels(), "web-uid"), corev1.PodFailed)},
			[]string{"a+"}, false, "", time.Time{},
		},
		"by labels alone": {
			"knative-service", `{}`,
			[]runtime.Object{
				pod("a", labels("serving.knative.dev/service", "web"), "some-uid"), pod("b", labels("serving.knative.dev/service", "web"), ""),
				pod("c", labels("serving.knative.dev/service", "other"), "some-uid"), finished(pod("d", labels("serving.knative.dev/service", "web"), ""), corev1.PodSucceeded),
			},
			[]string{"a+", "b+"}, false, "", time.Time{},
		},
		"of an object without a selector": {
			"kruise-cloneset", `{"spec":{"selector":{}}}`, []runtime.Object{pod("a", labels(), "web-uid")}, nil, false, "", time.Time{},
		},
		"of a Rollout without a selector": {
			"argo-rollout", `{}`, []runtime.Object{set("new", "n", "web-uid"), pod("a", labels(hash, "n"), "new-uid")}, nil, false, "", time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kind.OfPreset(tt.preset)
			client := customClient(t, k, tt.object, tt.objects...)
			s, err := Select(t.Context(), client, workload(k.Name), true)
			if err != nil {
				t.Fatal(err)
			}
			var pods []string
			if _, err := s.Each(t.Context(), client, AllPods, func(p *corev1.Pod) {
				name := p.Name
				if s.OfRevision(p) {
					name += "+"
				}
				pods = append(pods, name)
			}); err != nil {
				t.Fatal(err)
			}
			slices.Sort(pods)
			if diff := cmp.Diff(tt.pods, pods); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if s.Reused != tt.reused || s.Revision != tt.revision || !s.RevisionCreated.Equal(tt.created) {
				t.Errorf("reused: %v, revision %q of %v", s.Reused, s.Revision, s.RevisionCreated)
			}
		})
	}
}

func TestSelect_UnknownPods(t *testing.T) {
	k, errs := kind.New(kind.Descriptor{
		Group: "goharbor.io", Kind: "HarborCluster", Resource: "harborclusters", Versions: []string{"v1beta1"}, Reload: kind.Reload{By: kind.ByEvent},
	}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s, err := Select(t.Context(), customClient(t, k, `{}`), workload(k.Name), true)
	if s != nil || err == nil || err.Error() != "the pods of a HarborCluster cannot be looked up" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := Get(t.Context(), customClient(t, k, `{}`), nil, dependency.WorkloadKey{Kind: k.Name, Namespace: "shop", Name: "web"}); err != nil {
		t.Error(err)
	}
}
