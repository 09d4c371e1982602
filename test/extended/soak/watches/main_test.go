// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/seeds"
)

var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	how     settings
)

// settings are the duration and size of a run.
type settings struct {
	seed     uint64
	duration time.Duration // 0: the short form
	round    time.Duration // of changes, before each calm
	// The number of namespaces, and of workloads in each.
	namespaces, workloads int
	lag                   time.Duration // of versions
	sample                time.Duration // between samples of the memory
}

func readSettings() (s settings, err error) {
	s = settings{round: 8 * time.Second, namespaces: 3, workloads: 100, lag: 5 * time.Second, sample: time.Second}
	asked, err := seeds.Read()
	if asked.Duration > 0 {
		s.round, s.namespaces, s.workloads, s.lag, s.sample = 45*time.Second, 10, 500, 20*time.Second, 2*time.Second
	}
	s.seed, s.duration = asked.First, asked.Duration
	return s, err
}

func TestMain(m *testing.M) {
	var err error
	if how, err = readSettings(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "seed %d; again: %s=%[1]d go test ./test/extended/soak/watches\n", how.seed, seeds.Variable)
	// Without the race detector, which needs memory itself.
	os.Exit(install.Run(m, controlplane.Options{APIServerOnly: true}, install.Options{
		Replicas: 3,
		Args: []string{
			"--shutdown-delay-duration=0s", "--max-version-lag=" + how.lag.String(),
			"--leader-elect-lease-duration=4s",
		},
	}, func(c *controlplane.ControlPlane, i *install.Installation) { cluster, server = c, i }))
}

func client(t *testing.T, config *rest.Config) configdepv1alpha1.ConfigdepV1alpha1Interface {
	t.Helper()
	c, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.ConfigdepV1alpha1()
}
