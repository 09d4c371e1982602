// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// Each block of docs/safe-rollouts.md works as it is printed, too.
func TestSafeRollouts(t *testing.T) {
	t.Parallel()
	tryRecipes(t, "../../docs/safe-rollouts.md", map[string]func(*recipe){
		"How far is it?":                         func(r *recipe) { r.web("web"); r.run(pluginDone) },
		"A canary first, then the others":        recipeCanaryFirst,
		"The database before the API":            recipeDatabaseFirst,
		"At weekends only":                       recipeWeekends,
		"A human approves production":            recipeApproved,
		"A few at a time":                        recipeBudget,
		"A new CA bundle for the whole platform": recipeBundle,
		"Freeze by an alert":                     recipeFreeze,
	})
}

// optIn opts Deployments in.
func (r *recipe) optIn(names ...string) {
	r.Helper()
	for _, name := range names {
		r.edit(name, func(o *appsv1.Deployment) { optedIn(o) })
		r.view("deployment."+name, recorded)
	}
}

// policy applies the next block, a ReloadPolicy, and waits until it limits Deployments.
func (r *recipe) policy(names ...string) {
	r.Helper()
	text := r.next("yaml")
	var policy metav1.PartialObjectMetadata
	r.must(yaml.Unmarshal([]byte(text), &policy))
	r.must(os.WriteFile(filepath.Join(r.dir, "policy.yaml"), []byte(text), 0o600))
	r.Cleanup(func() {
		_ = objects.Resource(reloadPolicies).Delete(context.WithoutCancel(r.Context()), policy.Name, metav1.DeleteOptions{})
	})
	r.shell("kubectl apply -f policy.yaml", 0)
	for _, name := range names {
		r.view("deployment."+name, func(o *v1alpha1.ConfigDependency) error {
			if !slices.Equal(o.Status.Policies, []string{policy.Name}) {
				return fmt.Errorf("policies %v", o.Status.Policies)
			}
			return nil
		})
	}
}

func recipeCanaryFirst(r *recipe) {
	r.web("canary", "web")
	r.optIn("canary", "web")
	r.policy("canary", "web")
	r.run(0)
	r.write(db, "password", "new")
	r.view("deployment.canary", applied, restartedFor(string(db)))
	r.view("deployment.web", is(v1alpha1.StatePending, "Order"))
	r.crash("canary", true)
	r.view("deployment.web", is(v1alpha1.StateBlocked, "HaltedAfterFailure"))
}

func recipeDatabaseFirst(r *recipe) {
	r.web("api", "db")
	r.optIn("api", "db")
	r.run(0)
	since := r.write(db, "password", "new").GetResourceVersion()
	if w := r.watchWave(since, 2); w.begun[0] != "db" || w.most != 1 {
		r.Errorf("restarted in the order %v, %d at a time", w.begun, w.most)
	}
}

func recipeWeekends(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.policy("web")
	r.write(db, "password", "new")
	r.restartsIn(db, func(day time.Weekday, _ int) bool { return day == time.Saturday || day == time.Sunday })
}

// restartsIn waits until web has been restarted because of a source in a window, by the time of Berlin, or waits for the beginning of the next one.
func (r *recipe) restartsIn(source ref, open func(day time.Weekday, hour int) bool) {
	zone, err := time.LoadLocation("Europe/Berlin")
	r.must(err)
	isOpen := func(at time.Time) bool {
		at = at.In(zone)
		return open(at.Weekday(), at.Hour())
	}
	r.view("deployment.web", func(o *v1alpha1.ConfigDependency) error {
		if due := o.Status.RestartTime; o.Status.Reason == "Window" && due != nil {
			if !isOpen(due.Time) || isOpen(due.Add(-time.Second)) {
				r.Fatalf("due at %v, when no window opens", due)
			}
			return nil
		}
		if err := errors.Join(applied(o), restartedFor(string(source))(o)); err != nil {
			return err
		}
		if at := o.Status.LastReload.Time; !isOpen(at.Time) {
			r.Fatalf("restarted at %v, outside of a window", at)
		}
		return nil
	})
}

func recipeApproved(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.policy("web")
	r.write(db, "password", "new")
	r.view("deployment.web", is(v1alpha1.StatePending, "Approval"))
	r.prints(r.run(pluginDone), "Approval")
	r.view("deployment.web", applied, restartedFor(string(db)))
	r.run(pluginDone) // none waits any more
}

func recipeBudget(r *recipe) {
	r.web("api", "web")
	r.optIn("api", "web")
	r.policy("api", "web")
	since := r.write(db, "password", "new").GetResourceVersion()
	if w := r.watchWave(since, 2); w.most != 1 {
		r.Errorf("%d were restarted at a time", w.most)
	}
}

func recipeBundle(r *recipe) {
	const bundle ref = "ConfigMap/ca-bundle"
	r.shell("kubectl label namespace "+r.namespace+" environment=production", 0)
	r.write(bundle, "ca.crt", "old")
	r.create(deployment("web", optional(bundle)))
	r.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	awaitAge(r.T, r.namespace, "web")
	r.optIn("web")
	r.policy("web")
	r.write(bundle, "ca.crt", "new")
	r.restartsIn(bundle, func(_ time.Weekday, hour int) bool { return hour >= 22 || hour < 4 })
}

func recipeFreeze(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.policy("web")
	r.run(0)
	r.write(db, "password", "new")
	r.view("deployment.web", is(v1alpha1.StateBlocked, "PolicySuspended"))
	r.run(0)
	r.view("deployment.web", applied, restartedFor(string(db)))
}
