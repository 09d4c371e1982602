// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
)

func TestMissing_NamesEachSourceAndKey(t *testing.T) {
	x := newWorld(t, podOf(
		env(dependency.Secret, "db", "user"), env(dependency.Secret, "db", "password"), env(dependency.Secret, "db", "host"),
		envFrom(dependency.ConfigMap, "gone"), optionalEnvFrom(dependency.ConfigMap, "optional"), unmounted(dependency.Secret, "tls"),
	), secret("db", "host", "h"))
	got, absent := x.evaluate().Missing()
	if diff := cmp.Diff([]string{"ConfigMap gone is missing", "Secret db lacks the keys password and user"}, got); diff != "" || !absent {
		t.Errorf("absent = %v, missing (-want +got):\n%s", absent, diff)
	}
	x.set(configMap("gone"))
	x.set(secret("tls"))
	if got, absent := x.evaluate().Missing(); len(got) != 1 || absent {
		t.Errorf("absent = %v, missing = %v", absent, got)
	}
}

// TestEvaluate_HashDoesNotDependOnThePlaceOfUse: two workloads that read the same content have the
// same hash, whatever their names and containers.
func TestEvaluate_HashDoesNotDependOnThePlaceOfUse(t *testing.T) {
	a := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.Secret, "db", "user")), secret("db", "password", "1", "user", "u", "more", "m"))
	b := newWorld(t, podOf(volume(dependency.Secret, "db", "user"), env(dependency.Secret, "db", "password")), secret("db", "password", "1", "user", "u"))
	if a.evaluate().Hash != b.evaluate().Hash {
		t.Error("the hashes of the same content differ")
	}
	b.set(secret("db", "password", "1", "user", "v"))
	if a.evaluate().Hash == b.evaluate().Hash {
		t.Error("the hashes of different content are equal")
	}
}
