// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

func TestWorkloadOf(t *testing.T) {
	all, err := kind.NewTable([]string{"argo-rollout", "knative-service", "kruise-cloneset"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		apiVersion, kind, owner string // of its controller
		labels                  map[string]string
		want                    string // empty: none
		uid                     bool
	}{
		"a pod by itself":                {"", "", "", nil, "Pod web-1", true},
		"of a Deployment":                {"apps/v1", "ReplicaSet", "web-6d4f", map[string]string{"pod-template-hash": "6d4f"}, "Deployment web", false},
		"of a ReplicaSet":                {"apps/v1", "ReplicaSet", "web-6d4f", nil, "ReplicaSet web-6d4f", true},
		"of a ReplicaSet, with a label":  {"apps/v1", "ReplicaSet", "web", map[string]string{"pod-template-hash": "6d4f"}, "ReplicaSet web", true},
		"of a ReplicaSet, label empty":   {"apps/v1", "ReplicaSet", "web-", map[string]string{"pod-template-hash": ""}, "ReplicaSet web-", true},
		"of a Rollout":                   {"apps/v1", "ReplicaSet", "web-77", map[string]string{"rollouts-pod-template-hash": "77"}, "Rollout web", false},
		"of a StatefulSet":               {"apps/v1", "StatefulSet", "db", map[string]string{"controller-revision-hash": "db-1"}, "StatefulSet db", true},
		"of a Job":                       {"batch/v1", "Job", "report-1", nil, "Job report-1", true},
		"of a CloneSet":                  {"apps.kruise.io/v1beta1", "CloneSet", "web", nil, "CloneSet web", true},
		"of Knative":                     {"apps/v1", "ReplicaSet", "web-00001-deployment-6d4f", map[string]string{"serving.knative.dev/service": "web", "pod-template-hash": "6d4f"}, "Deployment web-00001-deployment", false},
		"of a kind that is not known":    {"example.com/v1", "Shop", "web", nil, "", false},
		"of a kind in another API group": {"example.com/v1", "StatefulSet", "web", nil, "", false},
		"of no API version":              {"a/b/c", "StatefulSet", "web", nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "pod", Labels: tt.labels}}
			uid := "pod"
			if tt.kind != "" {
				pod.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: "other"}, {APIVersion: tt.apiVersion, Kind: tt.kind, Name: tt.owner, UID: "owner", Controller: new(true)},
				}
				uid = "owner"
			}
			key, got, found := all.WorkloadOf(pod)
			text := ""
			if found {
				text = string(key.Kind) + " " + key.Name
			}
			if text != tt.want || found && key.Namespace != "shop" || tt.uid != (string(got) == uid) || !tt.uid && got != "" {
				t.Errorf("%v with UID %q, found = %v; want %s", key, got, found, tt.want)
			}
		})
	}
}

// Of some custom resources, labels say which pods belong to them: their controllers create other objects, which control the pods.
func TestLabelledWorkload(t *testing.T) {
	var names []string
	for _, p := range kind.Presets() {
		names = append(names, p.Name)
	}
	shop, errs := kind.New(kind.Descriptor{
		Group: "example.com", Kind: "Shop", Resource: "shops", Versions: []string{"v1"}, PodTemplates: []kind.TemplatePath{{Path: ".spec.template"}},
		Pods: &kind.Pods{
			Labels: map[string]string{"shop": "of-$(name).x", "shop.example.com/name": "$(name)", "part": "front"}, Controller: kind.ControlledByAny,
		},
		Reload: kind.Reload{By: kind.ByTemplateAnnotation},
	}, nil)
	all, err := kind.NewTable(names, []*kind.Kind{shop})
	if err != nil || len(errs) > 0 {
		t.Fatal(err, errs)
	}
	type m = map[string]string
	for name, tt := range map[string]struct {
		labels m
		want   string
	}{
		"of Knative":               {m{"serving.knative.dev/service": "web", "pod-template-hash": "6d4f"}, "KnativeService web"},
		"of a LeaderWorkerSet":     {m{"leaderworkerset.sigs.k8s.io/name": "web", "controller-revision-hash": "1"}, "LeaderWorkerSet web"},
		"of a DeploymentConfig":    {m{"deploymentconfig": "web", "deployment": "web-1"}, "DeploymentConfig web"},
		"of a RayCluster":          {m{"ray.io/cluster": "web"}, ""}, // which controls its pods itself
		"all labels":               {m{"shop": "of-web.x", "shop.example.com/name": "web", "part": "front"}, "Shop web"},
		"two names":                {m{"shop": "of-web.x", "shop.example.com/name": "api", "part": "front"}, ""},
		"a label without the name": {m{"shop": "of-web.x", "shop.example.com/name": "web", "part": "back"}, ""},
		"a label that is missing":  {m{"shop": "of-web.x", "part": "front"}, ""},
		"another prefix":           {m{"shop": "web.x", "shop.example.com/name": "web", "part": "front"}, ""},
		"another suffix":           {m{"shop": "of-web", "shop.example.com/name": "web", "part": "front"}, ""},
		"no name":                  {m{"serving.knative.dev/service": ""}, ""},
		"none":                     {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			key, found := all.LabelledWorkload(&metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: tt.labels})
			if got := strings.TrimSpace(string(key.Kind) + " " + key.Name); got != tt.want || found != (tt.want != "") || found && key.Namespace != "shop" {
				t.Errorf("%v, %v; want %s", key, found, tt.want)
			}
		})
	}
	if key, found := kind.Table(nil).LabelledWorkload(&metav1.ObjectMeta{Labels: m{"deploymentconfig": "web"}}); found {
		t.Errorf("without custom kinds: %v", key)
	}
}

// The label that identifies the template of a pod is that which its controller sets.
func TestPodRevision(t *testing.T) {
	all, err := kind.NewTable([]string{"argo-rollout", "kruise-daemonset"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"controller-revision-hash": "r", "pod-template-generation": "7", "rollouts-pod-template-hash": "h", "other": "x"}
	for name, want := range map[dependency.WorkloadKind]string{
		kind.Deployment: "r", kind.StatefulSet: "r", kind.DaemonSet: "7", "Rollout": "h", "AdvancedDaemonSet": "r",
	} {
		if got := all.Of(name).PodRevision(labels); got != want {
			t.Errorf("of a %s: %q, want %q", name, got, want)
		}
	}
	labels["pod-template-hash"] = "6d4f"
	if got := all.Of(kind.Deployment).PodRevision(labels); got != "6d4f" {
		t.Errorf("of a Deployment: %q", got)
	}
}

// A Job is a run of the CronJob that controls it.
func TestRunOf(t *testing.T) {
	job := func(owner string, controls bool) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: "shop", Name: "report-1", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: owner, Name: "report", UID: "u", Controller: &controls},
		}}
	}
	jobs := kind.Table(nil).Of(kind.Job)
	want := &dependency.Run{
		WorkloadKey: dependency.WorkloadKey{Kind: kind.Job, Namespace: "shop", Name: "report-1"},
		Of:          dependency.WorkloadKey{Kind: kind.CronJob, Namespace: "shop", Name: "report"}, Owner: "u",
	}
	if diff := cmp.Diff(want, jobs.RunOf(job("CronJob", true))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, run := range map[string]*dependency.Run{
		"of another tool": jobs.RunOf(job("Workflow", true)), "not controlled": jobs.RunOf(job("CronJob", false)),
		"by itself": jobs.RunOf(&metav1.ObjectMeta{}), "of another kind": kind.Table(nil).Of(kind.ReplicaSet).RunOf(job("CronJob", true)),
	} {
		if run != nil {
			t.Errorf("%s: %+v", name, run)
		}
	}
}
