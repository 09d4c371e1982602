// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

var (
	deployments = &stream{name: "deployments", part: workloadPart(kind.Deployment)}
	cronJobs    = &stream{name: "cronjobs", part: workloadPart(kind.CronJob)}
	jobs        = &stream{name: "jobs", part: workloadPart(kind.Job), lossy: true}
	pods        = &stream{name: "pods", part: podPart{}}
	secrets     = &stream{name: "secrets", part: sourcePart(dependency.Secret)}
	configMaps  = &stream{name: "configmaps", part: sourcePart(dependency.ConfigMap)}
	namespaces  = &stream{name: "namespaces", part: namespacePart{}, lossy: true}
)

// now is the time of everything, unless the clock is set.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Sinks are not told before everything is read: half of the sources would look missing.
func TestIndex_NotifiesOnlyAfterTheFirstSync(t *testing.T) {
	r := &recorder{}
	x, _ := newTestIndex(r, "deployments", "secrets", "jobs")
	awaits := func(want string) {
		t.Helper()
		err := x.Synced()
		if err == nil || err.Error() != "waiting for the first list of "+want {
			t.Errorf("Synced = %v, want to wait for %s", err, want)
		}
	}
	awaits("deployments, jobs, secrets")
	must(t, newStore(x, secrets).Replace([]any{secret("db", 1)}, "10"))
	awaits("deployments, jobs")
	must(t,
		newStore(x, secrets).Add(secret("more", 11)),
		newStore(x, secrets).Update(secret("db", 12)),
		newStore(x, secrets).Delete(secret("more", 13)),
		newStore(x, secrets).Bookmark("14"),
		newStore(x, secrets).Replace([]any{secret("db", 12)}, "15"), // a relist
		newStore(x, deployments).Add(deployment("early", 16)),
	)
	awaits("deployments, jobs")
	if x.Read(func(decide.Evaluator) { t.Error("the graph is read before the sync") }) {
		t.Error("Read = true before the sync")
	}
	must(t, newStore(x, deployments).Replace([]any{deployment("web", 3, "db")}, "12"))
	awaits("jobs")
	if told := r.told(); len(told) != 0 {
		t.Errorf("notifications before the sync = %q, want none", told)
	}
	must(t, newStore(x, jobs).Replace(nil, "9"))
	if err := x.Synced(); err != nil {
		t.Errorf("after the last list: Synced = %v", err)
	}
	read := false
	if !x.Read(func(known decide.Evaluator) {
		g := known.Graph
		read = g != nil
	}) || !read {
		t.Error("the graph cannot be read after the sync")
	}
	if diff := cmp.Diff([]string{"synced at 16 with 1 workloads and 1 sources"}, r.told()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	must(t, newStore(x, jobs).Replace(nil, "17"))
	if diff := cmp.Diff([]string{"progressed to 17"}, r.told()); diff != "" {
		t.Errorf("notifications of a relist after the sync (-want +got):\n%s", diff)
	}
}

// Each case starts with the Secrets db and unused, the Deployments web and api, which read db, and
// the Deployment idle, whose annotation names the Secrets tls and feature-*.
func TestIndex_NotifiesOfAffectedWorkloads(t *testing.T) {
	tests := map[string]struct {
		change func(*Index) error
		want   string
	}{
		"a workload is created":          {func(x *Index) error { return newStore(x, deployments).Add(deployment("new", 101)) }, "changed at 101: deployment.new"},
		"a workload changes":             {func(x *Index) error { return newStore(x, deployments).Update(deployment("web", 101)) }, "changed at 101: deployment.web"},
		"a workload is deleted":          {func(x *Index) error { return newStore(x, deployments).Delete(deployment("web", 101)) }, "changed at 101: -deployment.web"},
		"an unknown workload is deleted": {func(x *Index) error { return newStore(x, deployments).Delete(deployment("x", 101)) }, "progressed to 101"},
		"a source changes":               {func(x *Index) error { return newStore(x, secrets).Update(secret("db", 101)) }, "changed at 101: deployment.api deployment.web"},
		"a source is deleted":            {func(x *Index) error { return newStore(x, secrets).Delete(secret("db", 101)) }, "changed at 101: deployment.api deployment.web"},
		"a source that is unused":        {func(x *Index) error { return newStore(x, secrets).Update(secret("unused", 101)) }, "progressed to 101"},
		"a source of another kind": {func(x *Index) error {
			return newStore(x, configMaps).Add(sourceObject(dependency.ConfigMap, "db", 101))
		}, "progressed to 101"},
		"a workload of another kind":        {func(x *Index) error { return newStore(x, jobs).Delete(workloadObject(kind.Job, "web", 101)) }, "progressed to 101"},
		"a source that an annotation names": {func(x *Index) error { return newStore(x, secrets).Add(secret("tls", 101)) }, "changed at 101: deployment.idle"},
		"a source that a glob matches":      {func(x *Index) error { return newStore(x, secrets).Add(secret("feature-a", 101)) }, "changed at 101: deployment.idle"},
		"a namespace names a source for all": {
			func(x *Index) error {
				must(t, newStore(x, namespaces).Update(namespaceObject("ns", 101, map[string]string{policy.SourcesAnnotation: "secret/unused"})))
				return newStore(x, secrets).Update(secret("unused", 102))
			},
			"changed at 101: deployment.api deployment.idle deployment.web\nchanged at 102: deployment.api deployment.web",
		},
		"a namespace without our annotations": {
			func(x *Index) error { return newStore(x, namespaces).Update(namespaceObject("ns", 101, nil)) }, "progressed to 101",
		},
		"a namespace with the same annotations": {
			func(x *Index) error {
				off := map[string]string{policy.ReloadAnnotation: "off"}
				must(t, newStore(x, namespaces).Update(namespaceObject("ns", 101, off)))
				return newStore(x, namespaces).Update(namespaceObject("ns", 102, maps.Clone(off)))
			},
			"changed at 101: deployment.api deployment.idle deployment.web\nprogressed to 102",
		},
		"a namespace without workloads": {
			func(x *Index) error {
				return newStore(x, namespaces).Update(namespaceObject("other", 101, map[string]string{policy.ReloadAnnotation: "auto"}))
			}, "progressed to 101",
		},
		"a namespace is deleted": {
			func(x *Index) error {
				must(t, newStore(x, namespaces).Update(namespaceObject("ns", 101, map[string]string{policy.ReloadAnnotation: "off"})))
				return newStore(x, namespaces).Delete(namespaceObject("ns", 102, nil))
			},
			"changed at 101: deployment.api deployment.idle deployment.web\nchanged at 102: deployment.api deployment.idle deployment.web",
		},
		"a list that lacks namespaces": {
			func(x *Index) error {
				must(t, newStore(x, namespaces).Update(namespaceObject("ns", 101, map[string]string{policy.ReloadAnnotation: "off"})))
				return newStore(x, namespaces).Replace(nil, "102")
			},
			"changed at 101: deployment.api deployment.idle deployment.web\nchanged at 102: deployment.api deployment.idle deployment.web",
		},
		"a bookmark":                  {func(x *Index) error { return newStore(x, secrets).Bookmark("101") }, "progressed to 101"},
		"a bookmark of a slow watch":  {func(x *Index) error { return newStore(x, secrets).Bookmark("95") }, "progressed to 100"},
		"a change of a slow watch":    {func(x *Index) error { return newStore(x, deployments).Update(deployment("web", 95)) }, "changed at 100: deployment.web"},
		"a version that is no number": {func(x *Index) error { return newStore(x, secrets).Bookmark("x") }, "progressed to 100"},
		"a workload that is not shown": {
			func(x *Index) error { return newStore(x, jobs).Add(controlled("run", 101)) }, "progressed to 101",
		},
		"a workload gains a controller": {
			func(x *Index) error {
				return newStore(x, deployments).Update(controlled("web", 101))
			}, "changed at 101: -deployment.web",
		},
		"a list that lacks workloads": {
			func(x *Index) error { return newStore(x, deployments).Replace([]any{deployment("idle", 3)}, "101") },
			"changed at 101: -deployment.api -deployment.web",
		},
		"a list with a workload that has gained a controller": {
			func(x *Index) error {
				return newStore(x, deployments).Replace([]any{deployment("api", 2, "db"), deployment("idle", 3), controlled("web", 101)}, "102")
			},
			"changed at 102: -deployment.web",
		},
		"a list that lacks sources": {
			func(x *Index) error { return newStore(x, secrets).Replace([]any{secret("unused", 5)}, "101") },
			"changed at 101: deployment.api deployment.web",
		},
		"a list in which nothing has changed": {
			func(x *Index) error {
				return newStore(x, deployments).Replace([]any{deployment("web", 1, "db"), deployment("api", 2, "db"), naming(deployment("idle", 3), "secret/tls")}, "101")
			},
			"progressed to 101",
		},
		"a list of sources in which nothing has changed": {
			func(x *Index) error {
				return newStore(x, secrets).Replace([]any{secret("unused", 5), secret("db", 4)}, "101")
			},
			"progressed to 101",
		},
		"a list of namespaces in which nothing has changed": {
			func(x *Index) error {
				off := map[string]string{policy.ReloadAnnotation: "off"}
				must(t, newStore(x, namespaces).Replace([]any{namespaceObject("ns", 101, off)}, "101"))
				return newStore(x, namespaces).Replace([]any{namespaceObject("ns", 101, maps.Clone(off))}, "102")
			},
			"changed at 101: deployment.api deployment.idle deployment.web\nprogressed to 102",
		},
		"a list with a changed and a new workload, and without a deleted one": {
			func(x *Index) error {
				return newStore(x, deployments).Replace([]any{deployment("web", 101, "db"), deployment("new", 102), deployment("idle", 3)}, "103")
			},
			"changed at 103: -deployment.api deployment.new deployment.web",
		},
		"a list with a workload that was deleted and created again": {
			func(x *Index) error {
				again := deployment("web", 1, "db")
				workloadOf(again).UID = "another"
				return newStore(x, deployments).Replace([]any{again, deployment("api", 2, "db"), deployment("idle", 3)}, "101")
			},
			"changed at 101: deployment.web",
		},
		"a list of sources with a changed one": {
			func(x *Index) error {
				return newStore(x, secrets).Replace([]any{secret("db", 101), secret("unused", 5)}, "102")
			},
			"changed at 102: deployment.api deployment.web",
		},
		"a list of sources with a new one": {
			func(x *Index) error {
				return newStore(x, secrets).Replace([]any{secret("db", 4), secret("unused", 5), secret("feature-a", 101)}, "102")
			},
			"changed at 102: deployment.idle",
		},
		"a list of sources with a changed and a new one, and without a deleted one": {
			func(x *Index) error {
				return newStore(x, secrets).Replace([]any{secret("unused", 101), secret("tls", 102)}, "103")
			},
			"changed at 103: deployment.api deployment.idle deployment.web",
		},
		"an empty list of another resource": {
			func(x *Index) error { return newStore(x, jobs).Replace(nil, "101") }, "progressed to 101",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x, r := synced(t,
				[]any{deployment("web", 1, "db"), deployment("api", 2, "db"), naming(deployment("idle", 3), "secret/tls, secret/feature-*")},
				[]any{secret("db", 4), secret("unused", 5)})
			must(t, tt.change(x))
			if diff := cmp.Diff(strings.Split(tt.want, "\n"), r.told()); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
		})
	}
}

// A Job that a CronJob adopts is no longer shown, and nothing keeps its references.
func TestAJobThatGainsAControllerIsTakenOut(t *testing.T) {
	x, _ := synced(t, nil, []any{secret("db", 1)})
	must(t, newStore(x, jobs).Add(workloadObject(kind.Job, "seed", 101, "db")))
	users := func() (n int) {
		x.Read(func(known decide.Evaluator) {
			g := known.Graph
			n = len(g.Users(dependency.SourceKey{Kind: dependency.Secret, Namespace: "ns", Name: "db"}))
		})
		return n
	}
	if users() != 1 {
		t.Fatalf("got %d users of the source, want 1", users())
	}
	must(t, newStore(x, jobs).Update(controlled("seed", 102)))
	if users() != 0 {
		t.Errorf("got %d users of the source, want none", users())
	}
}

// Metrics show a resource that sends no events any longer.
func TestProgressOfResources(t *testing.T) {
	x, clock := newTestIndex(&recorder{}, "deployments", "secrets")
	must(t, newStore(x, deployments).Replace(nil, "5"), newStore(x, secrets).Replace(nil, "5"))
	later := now.Add(time.Minute)
	clock.SetTime(later)
	must(t, newStore(x, secrets).Bookmark("6"))
	got := x.LastProgress()
	if diff := cmp.Diff(map[string]time.Time{"deployments": now, "secrets": later}, got); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	clear(got) // a copy
	if len(x.LastProgress()) != 2 {
		t.Error("the progress was changed through its copy")
	}
}

// With another key, everything is read again, and the graph cannot be read until then.
func TestResetForgetsEverything(t *testing.T) {
	x, r := synced(t, []any{deployment("web", 1, "db")}, []any{secret("db", 2)})
	must(t, newStore(x, namespaces).Update(namespaceObject("ns", 101, map[string]string{policy.ReloadAnnotation: "off"})))
	r.told()
	x.Reset()
	if err := x.Synced(); err == nil || err.Error() != "waiting for the first list of deployments, jobs, secrets" {
		t.Errorf("Synced = %v", err)
	}
	if x.Read(func(decide.Evaluator) { t.Error("the graph is read") }) {
		t.Error("Read = true before everything is read again")
	}
	if workloads, sources := x.Size(); workloads != 0 || sources != 0 || len(x.LastProgress()) != 0 {
		t.Errorf("got %d workloads, %d sources and the progress of %v, want none", workloads, sources, x.LastProgress())
	}
	must(t,
		newStore(x, jobs).Replace(nil, "200"), newStore(x, deployments).Replace([]any{deployment("api", 3)}, "201"),
		newStore(x, secrets).Replace(nil, "202"))
	if diff := cmp.Diff([]string{"synced at 202 with 1 workloads and 0 sources"}, r.told()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	x.Read(func(known decide.Evaluator) {
		g := known.Graph
		if len(g.Namespace("ns")) != 0 {
			t.Errorf("annotations of the namespace = %v, want none", g.Namespace("ns"))
		}
	})
}
