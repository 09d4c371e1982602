// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// A write that removes the hash from a pod template counts as a rewrite if the template is the same otherwise.
func TestWorkload_After_CountsRewrites(t *testing.T) {
	read := func(uid types.UID, image, hash string, annotations map[string]string) *dependency.Workload {
		o := &dependency.Object{
			Kind: "Deployment", Meta: &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid}, Template: &corev1.PodTemplateSpec{}, Traits: dependency.Traits{Rollable: true},
		}
		o.Template.Annotations = annotations
		o.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
		return dependency.NewWorkload(o, dependency.Annotations{Marks: dependency.Marks{TemplateHash: hash}})
	}
	marked, other := map[string]string{"hash": "h", "a": "b"}, map[string]string{"a": "b"}
	for name, tt := range map[string]struct {
		before, now *dependency.Workload
		out         bool // it has not opted in
		want        int
	}{
		"the hash is gone":                 {before: read("1", "app:1", "h", marked), now: read("1", "app:1", "", other), want: 1},
		"with all annotations":             {before: read("1", "app:1", "h", marked), now: read("1", "app:1", "", nil), want: 1},
		"of a workload that has opted out": {before: read("1", "app:1", "h", marked), now: read("1", "app:1", "", other), out: true},
		"with another image":               {before: read("1", "app:1", "h", marked), now: read("1", "app:2", "", other)},
		"another hash":                     {before: read("1", "app:1", "h", marked), now: read("1", "app:1", "i", marked)},
		"there was none":                   {before: read("1", "app:1", "", other), now: read("1", "app:1", "", nil)},
		"another workload of that name":    {before: read("1", "app:1", "h", marked), now: read("2", "app:1", "", other)},
	} {
		t.Run(name, func(t *testing.T) {
			tt.before.Opt(!tt.out)
			tt.now.After(tt.before, dependency.Arrival{})
			if tt.now.Rewrites != tt.want {
				t.Errorf("%d rewrites, want %d", tt.now.Rewrites, tt.want)
			}
			again := read("1", "app:3", "h", marked)
			if again.After(tt.now, dependency.Arrival{}); tt.now.UID == again.UID && again.Rewrites != tt.want {
				t.Errorf("%d rewrites after another write, want %d", again.Rewrites, tt.want)
			}
		})
	}
}
