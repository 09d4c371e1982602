// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// podStream returns the stream.
func podStream() *stream { return Scope{}.pods() }

// agentPod returns a pod of Deployment web with an agent.
func agentPod(name, version, report string) *corev1.Pod {
	m := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, ResourceVersion: version, Labels: map[string]string{"pod-template-hash": "1", status.Label: status.LabelValue},
		Annotations:     map[string]string{"other": "x"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", Controller: new(true)}},
	}}
	if report != "" {
		m.Annotations[status.Annotation] = report
	}
	return m
}

// Of a pod with an agent, what that says about sources of its namespace is kept.
func TestPods_DecodeReportsOfAgents(t *testing.T) {
	for name, tt := range map[string]struct{ report, want string }{
		"silent":       {"", ""},
		"unreadable":   {"{", "Unreadable the annotation configdep.io/agent-status is not the JSON of a report"},
		"failed":       {`{"state":"Failed","message":"a\nb\u0000\u202ec"}`, "Failed a b  c"},
		"sources":      {`{"state":"Applied","sources":[{"kind":"Secret","namespace":"ns","name":"b","uid":"u","resourceVersion":"7"},{"kind":"ConfigMap","namespace":"ns","name":"a"},{"kind":"Secret","namespace":"ns","name":"b","resourceVersion":"1"}]}`, "Applied  ConfigMap/a@0 Secret/bu@7"},
		"elsewhere":    {`{"state":"Applied","sources":[{"kind":"Secret","namespace":"kube-system","name":"b"}]}`, "Applied "},
		"other kinds":  {`{"state":"Applied","sources":[{"kind":"Pod","namespace":"ns","name":"b"},{"kind":"Secret","namespace":"ns","name":"../b"}]}`, "Applied "},
		"no numbers":   {`{"state":"Applied","sources":[{"kind":"Secret","namespace":"ns","name":"b","resourceVersion":"-1"}]}`, "Applied  Secret/b@0"},
		"an odd state": {`{"state":"Unreadable"}`, "Unreadable the annotation configdep.io/agent-status has a state that is none of Applied, Applying, Incomplete and Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := agentPod("web-1-a", "7", tt.report).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			o, err := podStream().decode(raw)
			if err != nil || o.value == nil || o.Name != "web-1-a" || o.ResourceVersion != "7" {
				t.Fatalf("%+v, %v", o, err)
			}
			p := o.value.(*readPod)
			got := fmt.Sprint(p.Agent.State, " ", p.Agent.Message)
			for _, s := range p.Agent.Sources {
				got += fmt.Sprint(" ", s.Kind, "/", s.Name, s.UID, "@", s.Version)
			}
			if strings.TrimSpace(got) != strings.TrimSpace(tt.want) || p.Workload != (dependency.WorkloadKey{Kind: "Deployment", Namespace: "ns", Name: "web"}) {
				t.Errorf("of %v: %q, want %q", p.Workload, got, tt.want)
			}
		})
	}
	if _, err := podStream().decode([]byte("?")); err == nil {
		t.Error("what is no object is accepted")
	}
	bookmark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}
	raw, err := bookmark.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if o, err := podStream().decode(raw); err != nil || o.value != nil || o.Name != "" || o.ResourceVersion != "9" {
		t.Errorf("a bookmark: %+v, %v", o, err)
	}
}

// Workloads are told of when what their agents say changes, and of changes of the sources that these have applied.
func TestPods_ReportsOfAgentsConcernTheirWorkload(t *testing.T) {
	x, r := syncedWithin(t, Scope{}, []any{deployment("web", 1), deployment("api", 1)}, nil)
	s := podStream()
	apply := func(do func(any) error, m *corev1.Pod) {
		t.Helper()
		o, err := new(Replay).reduce(s, m)
		if err != nil {
			t.Fatal(err)
		}
		must(t, do(o))
	}
	st := newStore(x, s)
	steps := []struct {
		what string
		do   func()
		told bool
	}{
		{"a pod", func() { apply(st.Add, agentPod("web-1-a", "10", "")) }, true},
		{"its status", func() { apply(st.Update, agentPod("web-1-a", "11", "")) }, false},
		{"its report", func() {
			apply(st.Update, agentPod("web-1-a", "12", `{"state":"Applied","sources":[{"kind":"Secret","namespace":"ns","name":"tls"}]}`))
		}, true},
		{"the source", func() { must(t, newStore(x, streamOf(t, "secrets")).Add(secret("tls", 13))) }, true},
		{"another source", func() { must(t, newStore(x, streamOf(t, "secrets")).Add(secret("other", 14))) }, false},
		{"a list without it", func() { must(t, st.Replace(nil, "15")) }, true},
		{"the source, without a pod", func() { must(t, newStore(x, streamOf(t, "secrets")).Update(secret("tls", 16))) }, false},
	}
	for _, step := range steps {
		r.told()
		step.do()
		told := slices.ContainsFunc(r.told(), func(call string) bool { return strings.Contains(call, "web") })
		if told != step.told {
			t.Errorf("%s: told = %v", step.what, told)
		}
	}
	// A pod that belongs to no workload that is known leaves nothing, also if it belonged to one.
	apply(st.Add, agentPod("web-1-a", "20", ""))
	other := agentPod("web-1-a", "21", "")
	other.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Shop", Name: "x", Controller: new(true)}
	apply(st.Update, other)
	x.Read(func(now decide.Evaluator) {
		now.Graph.EachPod(func(p *dependency.Pod) { t.Errorf("%+v is kept", p) })
	})
}
