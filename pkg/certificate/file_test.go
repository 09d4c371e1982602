// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The bundle follows the file, and does not change while the file is invalid.
func TestTheBundleFollowsAFile(t *testing.T) {
	one := next(t, usual, Content{}, time.Now())
	two := next(t, usual, Content{}, time.Now())
	path := filepath.Join(t.TempDir(), "ca.crt")
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic(apiService(""), configMap(nil))
		b := NewBundles(client, everyTarget)
		background(t, func(ctx context.Context) { Follow(ctx, path, b) })
		check := func(want string) {
			t.Helper()
			<-time.After(2 * reread)
			synctest.Wait()
			if diff := cmp.Diff(want, inCluster(t, client, APIServices, ours)); diff != "" {
				t.Errorf("APIService (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, inCluster(t, client, configMaps, "configdep-serving-ca")); diff != "" {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
		}
		check("") // there is no file yet
		writeFile(t, path, []byte(one.Bundle))
		check(one.Bundle)
		for _, bad := range []string{"", "not PEM", "-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n", one.Key} {
			writeFile(t, path, []byte(bad))
			check(one.Bundle)
		}
		// A private key in the file is not published.
		writeFile(t, path, []byte("# ours\n"+two.Bundle+two.Key+one.Bundle))
		check(two.Bundle + one.Bundle)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check(two.Bundle + one.Bundle)
	})
}
