// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// rekeying is an index of one Deployment and one Secret, whose key is replaced.
type rekeying struct {
	t        *testing.T
	clock    *clocktesting.FakeClock
	index    *Index
	replay   *Replay
	digester *dependency.Digester
	keys     byte
	web      *appsv1.Deployment
	secret   *corev1.Secret
}

func newRekeying(t *testing.T) *rekeying {
	t.Helper()
	r := &rekeying{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), web: webDeployment(), secret: runSecret("1")}
	r.web.UID, r.web.ResourceVersion = "web", "10"
	r.web.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
	r.web.Spec.Replicas = new(int32(1))
	r.web.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, ReadyReplicas: 1}
	r.secret.UID, r.secret.ResourceVersion = "db", "11"
	r.index = NewIndex(r.clock)
	r.read("12")
	d := r.decide()
	if d.Action != policy.WriteBaseline {
		t.Fatalf("after opting in: decision = %+v", d)
	}
	r.record("13")
	return r
}

func (r *rekeying) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// read reads everything with another key.
func (r *rekeying) read(version string) {
	r.t.Helper()
	r.keys++
	key := make([]byte, dependency.KeySize)
	key[0] = r.keys
	r.digester = dependency.NewDigester(key)
	r.replay = NewReplay(r.index, r.digester)
	r.must(r.replay.List(version, r.web.DeepCopy(), r.secret.DeepCopy()))
}

// record records the current content as the content of the pods.
func (r *rekeying) record(version string) {
	r.t.Helper()
	r.evaluate(func(e *policy.Evaluation) {
		present := e.Present()
		r.web.Annotations[policy.ConfigHashAnnotation] = present.Hash
		r.web.Annotations[policy.AppliedSourcesAnnotation] = `{"Secret/db":"` + present.Sources["Secret/db"] + `"}`
	})
	r.edit(version)
	if d := r.decide(); d.Action != policy.None || d.State != policy.InSync {
		r.t.Fatalf("after a record: decision = %+v", d)
	}
}

func (r *rekeying) edit(version string) {
	r.t.Helper()
	r.web.ResourceVersion = version
	r.must(r.replay.Set(r.web.DeepCopy()))
}

// write writes the Secret, which the index reads unless watches are broken.
func (r *rekeying) write(version, content string, watched bool) {
	r.t.Helper()
	r.secret = runSecret(content)
	r.secret.UID, r.secret.ResourceVersion = "db", version
	r.secret.CreationTimestamp = metav1.NewTime(r.clock.Now())
	if watched {
		r.must(r.replay.Set(r.secret.DeepCopy()))
	}
}

func (r *rekeying) evaluate(f func(*policy.Evaluation)) {
	r.t.Helper()
	if !r.index.Read(func(known policy.Evaluator) {
		g := known.Graph
		w := g.Workload(dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"})
		f(policy.Evaluator{Graph: g, Defaults: policy.Defaults{}}.Evaluate(w))
	}) {
		r.t.Fatal("the index is not synced")
	}
}

func (r *rekeying) decide() (d policy.Decision) {
	r.t.Helper()
	r.evaluate(func(e *policy.Evaluation) { d = e.Decide(policy.Observed{Now: r.clock.Now()}) })
	return d
}

// TestReplacedKeyLosesNoChange: neither a change that was seen just before, nor one that only the
// record shows, nor one while everything is read again. Nothing else is restarted.
func TestReplacedKeyLosesNoChange(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*rekeying)
		want    policy.Action
	}{
		"nothing has changed": {func(r *rekeying) {
			r.index.Rekey()
			r.read("20")
		}, policy.WriteBaseline},
		"a change just before": {func(r *rekeying) {
			r.write("14", "2", true)
			r.index.Rekey()
			r.read("20")
		}, policy.RollOut},
		"a change that only the record knows of": {func(r *rekeying) {
			r.write("14", "2", false)
			r.index.Reset() // another process
			r.keys--
			r.read("15")
			r.index.Rekey()
			r.read("20")
		}, policy.RollOut},
		"a change while everything is read again": {func(r *rekeying) {
			r.index.Rekey()
			r.write("14", "2", false)
			r.read("20")
		}, policy.RollOut},
		"a change after that": {func(r *rekeying) {
			r.index.Rekey()
			r.read("20")
			r.write("21", "2", true)
		}, policy.RollOut},
		"a status before the record is written again": {func(r *rekeying) {
			r.write("14", "2", true)
			r.index.Rekey()
			r.read("20")
			r.edit("21")
		}, policy.RollOut},
		"replaced twice, the second time before all was read": {func(r *rekeying) {
			r.write("14", "2", true)
			r.index.Rekey()
			r.must(r.replay.ListOf("deployments", "16", r.web.DeepCopy()))
			r.index.Rekey()
			r.read("20")
		}, policy.RollOut},
		"replaced twice": {func(r *rekeying) {
			r.index.Rekey()
			r.read("20")
			r.index.Rekey()
			r.read("30")
		}, policy.WriteBaseline},
		"the key is restored": {func(r *rekeying) {
			r.write("14", "2", true)
			r.index.Rekey()
			r.read("20")
			r.index.Rekey()
			r.keys -= 2
			r.read("30")
		}, policy.RollOut},
		"the template has changed meanwhile": {func(r *rekeying) {
			r.write("15", "2", true)
			r.index.Rekey()
			r.web.Spec.Template.Spec.Containers[0].Image = "app:2"
			r.web.ResourceVersion = "16"
			r.read("20")
		}, policy.RollOut}, // it is only known that the template was written after 13
		"the record has been removed": {func(r *rekeying) {
			r.write("14", "2", true)
			r.index.Rekey()
			r.read("20")
			delete(r.web.Annotations, policy.ConfigHashAnnotation)
			delete(r.web.Annotations, policy.AppliedSourcesAnnotation)
			r.edit("21")
		}, policy.RollOut},
		"another workload of that name": {func(r *rekeying) {
			r.index.Rekey()
			r.web.UID, r.web.ResourceVersion = types.UID("other"), "16"
			r.read("20")
		}, policy.WriteBaseline},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRekeying(t)
			tc.happens(r)
			r.clock.Step(time.Minute)
			d := r.decide()
			if d.Action != tc.want {
				t.Errorf("state = %s (%s: %s), action = %q, want %q", d.State, d.Reason, d.Message, d.Action, tc.want)
			}
			if d.Action == policy.WriteBaseline && r.web.UID == "web" && d.State != policy.InSync {
				t.Errorf("state = %s (%s)", d.State, d.Reason)
			}
		})
	}
}

// TestReplacedKeyLosesNoEventBetweenWorkloads: while records are converted to the new key one by
// one, it does not matter whether an event arrives before or after its workload is converted.
func TestReplacedKeyLosesNoEventBetweenWorkloads(t *testing.T) {
	const n = 300
	x := NewIndex(clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
	c := newCrowd(n)
	c.read(x, 1)
	c.record(x)
	c.read(x, 1)
	x.Rekey()
	last := c.readAllButOne(x, 2)
	store := func(name string) *store {
		for _, s := range everything.streams(c.digester) {
			if s.name == name {
				return newStore(x, s)
			}
		}
		t.Fatalf("%s are not read", name)
		return nil
	}
	deployments, secrets := store("deployments"), store("secrets")
	var wg sync.WaitGroup
	wg.Go(last)
	for i := range n {
		switch i % 3 {
		case 0:
			must(t, secrets.Update(c.secret(i, "20", "other")))
		case 1:
			must(t, deployments.Update(c.deployment(i, "20")))
		}
	}
	wg.Wait()
	if !x.Read(func(known policy.Evaluator) {
		g := known.Graph
		for i := range n {
			w := g.Workload(workloadOf(c.deployment(i, "")).WorkloadKey)
			ids, known := policy.Evaluator{Graph: g, Defaults: policy.Defaults{}}.Evaluate(w).Stale()
			if !known || (len(ids) > 0) != (i%3 == 0) {
				t.Errorf("%s: changed sources = %v (known: %v)", w.Name, ids, known)
			}
		}
	}) {
		t.Fatal("the index is not synced")
	}
}
