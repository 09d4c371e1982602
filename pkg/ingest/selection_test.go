// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// selects is a selector of labels.
func selects(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	must(t, err)
	return s
}

// What a scope leaves out, kube-apiserver does not send: each list, watch and request for the revision says so.
func TestScope_Requests(t *testing.T) {
	const ofDeployments, replicaSets = "pod-template-hash", "!pod-template-hash"
	const running = "status.phase!=Succeeded,status.phase!=Failed"
	for name, tt := range map[string]struct {
		scope Scope
		want  map[string][2]string // label and field selectors by stream
	}{
		"all": {Scope{}, map[string][2]string{
			"deployments": {}, "statefulsets": {}, "daemonsets": {}, "cronjobs": {}, "jobs": {}, "replicasets": {replicaSets, ""}, ReplicaSets: {ofDeployments, ""}, "pods": {"", running},
			"configmaps": {}, "secrets": {}, "namespaces": {},
		}},
		"without some namespaces": {Scope{IgnoredNamespaces: []string{"kube-system", "dev"}, UnreadTypes: []string{releaseType}}, map[string][2]string{
			"deployments": {"", "metadata.namespace!=kube-system,metadata.namespace!=dev"}, "statefulsets": {"", "metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"daemonsets": {"", "metadata.namespace!=kube-system,metadata.namespace!=dev"}, "cronjobs": {"", "metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"jobs": {"", "metadata.namespace!=kube-system,metadata.namespace!=dev"}, "replicasets": {replicaSets, "metadata.namespace!=kube-system,metadata.namespace!=dev"},
			ReplicaSets:              {ofDeployments, "metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"pods":                   {"", running + ",metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"configmaps":             {"", "metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"secrets":                {"", "type!=" + releaseType + ",metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"secrets/" + releaseType: {"", "type=" + releaseType + ",metadata.namespace!=kube-system,metadata.namespace!=dev"},
			"namespaces":             {},
		}},
		"some namespaces, of which none is left out": {
			Scope{Namespaces: []string{"shop"}, IgnoredNamespaces: []string{"shop"}, IgnoredWorkloads: []dependency.WorkloadKind{kind.ReplicaSet, kind.Pod}}, map[string][2]string{
				"shop/" + ReplicaSets: {ofDeployments, ""}, "shop/pods": {"", running}, "shop/deployments": {}, "shop/statefulsets": {}, "shop/daemonsets": {}, "shop/cronjobs": {}, "shop/jobs": {}, "shop/configmaps": {}, "shop/secrets": {}, "namespaces": {},
			},
		},
		"sources with a label": {Scope{SourceSelector: selects(t, "env in (test,prod),reload"), UnreadTypes: []string{releaseType}}, map[string][2]string{
			"deployments": {}, "statefulsets": {}, "daemonsets": {}, "cronjobs": {}, "jobs": {}, "replicasets": {replicaSets, ""}, ReplicaSets: {ofDeployments, ""}, "pods": {"", running},
			"configmaps": {"env in (prod,test),reload", ""}, "secrets": {"env in (prod,test),reload", "type!=" + releaseType},
			"secrets/" + releaseType: {"", "type=" + releaseType}, "namespaces": {},
		}},
		"namespaces with a label": {Scope{NamespaceSelector: selects(t, "env=test"), IgnoredWorkloads: []dependency.WorkloadKind{kind.CronJob, kind.Job}}, map[string][2]string{
			"deployments": {}, "statefulsets": {}, "daemonsets": {}, "replicasets": {replicaSets, ""}, ReplicaSets: {ofDeployments, ""}, "pods": {"", running}, "configmaps": {}, "secrets": {}, "namespaces": {},
		}},
		"no ConfigMaps": {Scope{WithoutConfigMaps: true, IgnoredWorkloads: []dependency.WorkloadKind{kind.Job}}, map[string][2]string{
			"deployments": {}, "statefulsets": {}, "daemonsets": {}, "cronjobs": {}, "replicasets": {replicaSets, ""}, ReplicaSets: {ofDeployments, ""}, "pods": {"", running}, "secrets": {}, "namespaces": {},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string][2]string{}
			for _, s := range tt.scope.streams(testDigester()) {
				w := newWireOf(t, s, http.StatusForbidden, "text/plain", nil)
				ask := func(what string, request func() error) (labels, fields string) {
					t.Helper()
					if request() == nil {
						t.Fatalf("%s: %s: no error", s.name, what)
					}
					asked := (<-w.asked).URL.Query()
					return asked.Get("labelSelector"), asked.Get("fieldSelector")
				}
				labels, fields := ask("list", func() error { _, err := w.list(t, metav1.ListOptions{}); return err })
				got[s.name] = [2]string{labels, fields}
				watched, watchedFields := ask("watch", func() error {
					_, err := w.lister.(cache.ListerWatcherWithContext).WatchWithContext(quiet(t), metav1.ListOptions{})
					return err
				})
				if watched != labels || watchedFields != fields {
					t.Errorf("%s: watched with labels %s and fields %s", s.name, watched, watchedFields)
				}
				probed, probedFields := ask("revision", func() error { _, err := w.reader.revision(quiet(t), s); return err })
				if probed != labels || !strings.HasPrefix(probedFields, strings.TrimPrefix(fields+",metadata.name=-", ",")) {
					t.Errorf("%s: request for the revision with labels %s and fields %s", s.name, probed, probedFields)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// The graph knows what is not read, also after a reset.
func TestIndex_KnowsWhatIsNotRead(t *testing.T) {
	for name, tt := range map[string]struct {
		scope                        Scope
		configMaps, secrets, byLabel bool
	}{
		"all is read":          {Scope{}, true, true, false},
		"no ConfigMaps":        {Scope{WithoutConfigMaps: true}, false, true, false},
		"no Secrets":           {Scope{WithoutSecrets: true}, true, false, false},
		"sources with a label": {Scope{SourceSelector: selects(t, "reload")}, true, true, true},
	} {
		x := NewIndex(stoppedClock{}, &recorder{})
		x.Within(tt.scope)
		for range 2 {
			x.mu.RLock()
			g := x.graph
			if g.Observes(dependency.ConfigMap) != tt.configMaps || g.Observes(dependency.Secret) != tt.secrets || g.SelectedByLabel() != tt.byLabel {
				t.Errorf("%s: ConfigMaps are read: %t, Secrets: %t, selected by label: %t", name,
					g.Observes(dependency.ConfigMap), g.Observes(dependency.Secret), g.SelectedByLabel())
			}
			x.mu.RUnlock()
			x.Reset()
		}
	}
}

// Workloads are restarted automatically while their namespace has a label. The workloads of a namespace that has not been
// read, or was deleted, are not.
func TestIndex_NamespaceSelector(t *testing.T) {
	const opted = "auto"
	web := func(namespace string, version int) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: namespace, ResourceVersion: fmt.Sprint(version), Annotations: map[string]string{policy.ReloadAnnotation: opted},
		}}
	}
	space := func(name string, version int, env string, annotations ...string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(version), Labels: map[string]string{"env": env}}}
		for _, a := range annotations {
			n.Annotations = map[string]string{policy.SettleAnnotation: a}
		}
		return n
	}
	sink := &recorder{}
	x := NewIndex(stoppedClock{}, sink)
	x.SetDefaults(policy.Defaults{Mode: policy.Off})
	x.Within(Scope{NamespaceSelector: selects(t, "env=test")})
	replay := NewReplay(x, testDigester())
	must(t, replay.List("50", web("shop", 10), web("dev", 11), web("unread", 12), space("shop", 20, "test"), space("dev", 21, "prod", "1s"), space("empty", 22, "prod", "1s")))
	sink.told()
	for _, step := range []struct {
		why      string
		do       func() error
		want     string // what the sink is told
		selected string // the namespaces whose workloads are restarted
		kept     int    // the namespaces of which anything is kept
	}{
		{"at the start", func() error { return nil }, "", "shop", 1},
		{"an annotation is added where no label is", func() error { return replay.Set(space("dev", 60, "prod", "2s")) }, "progressed to 60", "shop", 1},
		{"the label is added", func() error { return replay.Set(space("dev", 61, "test", "2s")) }, "changed at 61: deployment.dev", "dev shop", 2},
		{"the label is removed", func() error { return replay.Set(space("shop", 62, "prod")) }, "changed at 62: deployment.shop", "dev", 1},
		{"a list shows that the label is back", func() error {
			return replay.ListOf("namespaces", "63", space("dev", 61, "test", "2s"), space("shop", 63, "test"), space("empty", 22, "prod"))
		}, "changed at 63: deployment.shop", "dev shop", 2},
		{"a workload is created before its namespace is read", func() error { return replay.Set(web("late", 64)) }, "changed at 64: deployment.late", "dev shop", 2},
		{"its namespace is read", func() error { return replay.Set(space("late", 60, "test")) }, "changed at 64: deployment.late", "dev late shop", 3},
		{"a namespace is deleted", func() error { return replay.Delete(space("dev", 65, "test")) }, "changed at 65: deployment.dev", "late shop", 2},
		{"a list shows that another was deleted", func() error { return replay.ListOf("namespaces", "66", space("shop", 63, "test")) }, "changed at 66: deployment.late", "shop", 1},
	} {
		must(t, step.do())
		want := []string{step.want}
		if step.want == "" {
			want = nil
		}
		if diff := cmp.Diff(want, sink.told()); diff != "" {
			t.Errorf("%s: notifications (-want +got):\n%s", step.why, diff)
		}
		x.Read(func(now decide.Evaluator) {
			var selected []string
			now.Graph.EachWorkload(func(w *dependency.Workload) {
				p := now.Evaluate(w).Policy
				if on := p.Mode == policy.Auto; on != w.OptedIn || !on && p.DeclaredBy != policy.DeclaredBySelector {
					t.Errorf("%s: %s: opted in = %t, policy = %+v", step.why, w.Name, w.OptedIn, p)
				} else if on {
					selected = append(selected, w.Namespace)
				}
			})
			kept := 0
			now.Graph.EachNamespace(func(string) { kept++ })
			if got := strings.Join(selected, " "); got != step.selected || kept != step.kept {
				t.Errorf("%s: selected = %s, want %s; %d namespaces are kept, want %d", step.why, got, step.selected, kept, step.kept)
			}
		})
	}
}

// An index that reads less refuses what it does not read, and does not wait for it.
func TestIndex_WithoutSomeKinds(t *testing.T) {
	x := NewIndex(stoppedClock{}, &recorder{})
	x.Within(Scope{WithoutConfigMaps: true, IgnoredWorkloads: []dependency.WorkloadKind{kind.Job, kind.CronJob}})
	replay := NewReplay(x, testDigester())
	must(t, replay.List("10"), x.Synced())
	for _, o := range []runtime.Object{&corev1.ConfigMap{}, kind.Table(nil).Of(kind.Job).New(), kind.Table(nil).Of(kind.CronJob).New()} {
		if err := replay.Set(o); err == nil {
			t.Errorf("a %T is accepted", o)
		}
	}
	must(t, replay.Set(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "11"}}))
}
