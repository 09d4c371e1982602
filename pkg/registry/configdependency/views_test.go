// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"testing"

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
	if revisionOf(t, after.ResourceVersion) != 200 || c.states()[v1alpha1.StateRollingOut] != 1 {
		t.Errorf("version %s, states %v", after.ResourceVersion, c.states())
	}
}
