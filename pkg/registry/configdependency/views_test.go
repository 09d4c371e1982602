// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/kind"
)

// states returns the number of workloads by state, of states that there are.
func (c *cluster) states() map[v1alpha1.State]int {
	states := map[v1alpha1.State]int{}
	for state, n := range c.views.States() {
		if n != 0 {
			states[v1alpha1.State(state)] = n
		}
	}
	return states
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("not in a minute: %s", what)
	}
}

// A workload whose content settles is shown as such, and afterwards as due, though nothing
// happens in the cluster but that time goes by.
func TestTimeAloneChangesAView(t *testing.T) {
	c := withWebInSync(t)
	if diff := cmp.Diff(map[v1alpha1.State]int{v1alpha1.StateInSync: 1}, c.states()); diff != "" {
		t.Fatalf("states (-want +got):\n%s", diff)
	}
	c.set(secret("db", "two", secondOf(4)))
	settling, err := c.views.Lookup("shop", "deployment.web")
	if err != nil || settling.Status.State != v1alpha1.StateSettling {
		t.Fatalf("view %v, error %v", settling, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.views.Run(ctx) })
	c.clock.Step(999 * time.Millisecond)
	if diff := cmp.Diff(map[v1alpha1.State]int{v1alpha1.StateSettling: 1}, c.states()); diff != "" {
		t.Errorf("before the time is over (-want +got):\n%s", diff)
	}
	c.clock.Step(time.Millisecond)
	// The queue may be about to set its timer by what the time was before.
	await(t, "the workload is shown as due", func() bool {
		c.clock.Step(time.Second)
		return c.states()[v1alpha1.StatePending] == 1
	})
	cancel()
	wg.Wait()

	due, err := c.views.Lookup("shop", "deployment.web")
	if err != nil || due.Status.State != v1alpha1.StatePending {
		t.Errorf("view %v, error %v", due, err)
	}
	if settling.Status.State != v1alpha1.StateSettling {
		t.Error("the view that was given out has changed")
	}
	c.remove(web())
	if diff := cmp.Diff(map[v1alpha1.State]int{}, c.states()); diff != "" {
		t.Errorf("after the workload has gone (-want +got):\n%s", diff)
	}
}

// With another key of the hashes everything is forgotten, and shown again when it has been
// read again, with other hashes.
func TestResetOfTheViews(t *testing.T) {
	c := newCluster(t, workload(kind.Deployment, "ns", "web", nil, "Secret/db"))
	before, err := c.views.Lookup("ns", "deployment.web")
	if err != nil {
		t.Fatal(err)
	}
	held, err := c.rest.List(in("ns"), nil) // whose answer is still being written
	if err != nil {
		t.Fatal(err)
	}
	written := handlers(t, c.rest, held)
	c.rekey(func() {
		if _, err := c.views.Lookup("ns", "deployment.web"); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("error %v", err)
		}
		if _, err := c.rest.List(in("ns"), nil); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("error %v", err)
		}
		if n := len(c.states()); n != 0 {
			t.Errorf("%d states are left", n)
		}
		if again := handlers(t, c.rest, held); !bytes.Equal(written, again) {
			t.Errorf("a list that was begun before has changed from %s to %s", written, again)
		}
	})
	after, err := c.views.Lookup("ns", "deployment.web")
	if err != nil {
		t.Fatal(err)
	}
	if before.Status.ConfigHash == after.Status.ConfigHash {
		t.Errorf("the hash is still %s", after.Status.ConfigHash)
	}
	if revisionOf(t, after.ResourceVersion) != 200 || c.states()[v1alpha1.StateUnmanaged] != 1 {
		t.Errorf("version %s, states %v", after.ResourceVersion, c.states())
	}
}
