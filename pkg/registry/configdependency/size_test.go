// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
)

func stateOf(message string, usages ...int) *v1alpha1.ConfigDependency {
	o := &v1alpha1.ConfigDependency{}
	o.Labels = map[string]string{"app": "web"}
	o.Status.Message = message
	for i, n := range usages {
		o.Spec.Sources = append(o.Spec.Sources, v1alpha1.Source{Kind: v1alpha1.SourceSecret, Name: fmt.Sprint("s", i), Usages: make([]v1alpha1.Usage, n)})
		o.Status.Sources = append(o.Status.Sources, v1alpha1.SourceStatus{Kind: v1alpha1.SourceSecret, Name: fmt.Sprint("s", i)})
	}
	return o
}

// Two states of an object share what is the same in both, and what they share has no size.
func TestStatesShareWhatIsTheSame(t *testing.T) {
	usage := sizeOfOne[v1alpha1.Usage]()
	whole := sizeOf(stateOf("a", 1000, 10), nil)
	if whole < 1010*usage {
		t.Fatalf("a whole object has %d bytes", whole)
	}
	for name, tt := range map[string]struct {
		now  *v1alpha1.ConfigDependency
		most int // of what the state before holds alone
		min  int
	}{
		"another status":             {stateOf("another", 1000, 10), 2000, 100},
		"another use of one source":  {stateOf("a", 1000, 11), 10*usage + 3000, 10 * usage},
		"a source besides":           {stateOf("a", 1000, 10, 1), 3000, 100},
		"a source less":              {stateOf("a", 1000), 10*usage + 3000, 10 * usage},
		"all is other":               {stateOf("a", 1001, 11), whole, whole - 2000},
		"the same in another object": {stateOf("a", 1000, 10), 2000, 100},
	} {
		t.Run(name, func(t *testing.T) {
			before := stateOf("a", 1000, 10)
			want := tt.now.DeepCopy()
			share(tt.now, before)
			if got := sizeOf(before, tt.now); got > tt.most || got < tt.min {
				t.Errorf("%d bytes, want %d to %d", got, tt.min, tt.most)
			}
			if fmt.Sprintf("%+v", want) != fmt.Sprintf("%+v", tt.now) {
				t.Error("the object is another one")
			}
		})
	}
}

// The state before is being read while another one is made to share it. The race detector tells.
func TestSharedPatternsAreNotWritten(t *testing.T) {
	withPatterns := func(count int64) *v1alpha1.ConfigDependency {
		o := stateOf("a", 1)
		o.Status.Patterns = []v1alpha1.PatternStatus{{Kind: "Secret", Pattern: "*", Count: count, Names: []string{"a", "b"}}}
		return o
	}
	before := withPatterns(2)
	for _, count := range []int64{2, 3} {
		now := withPatterns(count)
		var read sync.WaitGroup
		read.Go(func() { _ = fmt.Sprint(before.Status.Patterns) })
		share(now, before)
		read.Wait()
		if !shares(now.Status.Patterns[0].Names, before.Status.Patterns[0].Names) || now.Status.Patterns[0].Count != count {
			t.Errorf("%+v", now.Status.Patterns)
		}
	}
}

// A Deployment as large as etcd admits changes, by its status and then by its template. What one of its
// states holds is more than two MiB.
func TestHistoryOfALargeObject(t *testing.T) {
	deployment := func(i int, text string) ingesttest.Object {
		o := &appsv1.Deployment{}
		o.Namespace, o.Name, o.UID = "shop", "large", "large"
		o.Annotations = map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(i)}
		c := corev1.Container{Name: "app"}
		for n := range 8000 {
			from := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: fmt.Sprint("k", n)}}
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint(text, n), ValueFrom: from})
		}
		o.Spec.Template.Spec.Containers = []corev1.Container{c}
		o.Status.ObservedGeneration = int64(i)
		return o
	}
	c := newCluster(t, deployment(0, "V"))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range 40 {
		c.set(deployment(i, "V"))
	}
	if got := (heap() - before) >> 20; got > 8 {
		t.Errorf("40 changes of the status take %d MiB", got)
	}
	for i := range 70 {
		c.set(deployment(i, fmt.Sprint("V", i%2)))
	}
	if got := (heap() - before) >> 20; got > 64 {
		t.Errorf("70 changes of the template take %d MiB", got)
	}
	for i := range 200 {
		c.set(ingesttest.Secret("db", "k0", fmt.Sprint(i)))
	}
	if got := (heap() - before) >> 20; got > 64 {
		t.Errorf("200 changes of a Secret take %d MiB", got)
	}
	runtime.KeepAlive(c)
}
