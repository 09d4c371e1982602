// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// Older returns whether the control plane is older than a version of Kubernetes, such as "1.36".
func (c *ControlPlane) Older(than string) (bool, error) {
	client, err := c.client()
	if err != nil {
		return false, err
	}
	info, err := client.Discovery().ServerVersion()
	if err != nil {
		return false, fmt.Errorf("get the version of Kubernetes: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return false, err
	}
	return v.LessThan(version.MustParseGeneric(than)), nil
}

// Needs skips a test if the control plane is older than a version of Kubernetes, which is the first with what it needs.
func (c *ControlPlane) Needs(t testing.TB, release, what string) {
	t.Helper()
	older, err := c.Older(release)
	if err != nil {
		t.Fatal(err)
	}
	if older {
		t.Skipf("%s: since Kubernetes %s", what, release) //nolint:forbidigo // all other runs have a newer one
	}
}
