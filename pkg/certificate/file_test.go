// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"os"
	"path/filepath"
	"strings"
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
	one := next(t, usual, Content{}, nowhere, time.Now()).Content
	two := next(t, usual, Content{}, nowhere, time.Now()).Content
	path := filepath.Join(t.TempDir(), "ca.crt")
	synctest.Test(t, func(t *testing.T) {
		client := newDynamic(apiService(""), configMap(nil))
		b := NewBundles(client, everyTarget)
		background(t, func(ctx context.Context) { Follow(ctx, path, b) })
		check := func(want []byte) {
			t.Helper()
			<-time.After(2 * reread)
			synctest.Wait()
			if diff := cmp.Diff(string(want), inCluster(t, client, APIServices, ours)); diff != "" {
				t.Errorf("APIService (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(string(want), inCluster(t, client, configMaps, "configdep-serving-ca")); diff != "" {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
		}
		check(nil) // there is no file yet
		writeFile(t, path, one.Bundle)
		check(one.Bundle)
		for _, bad := range []string{"", "not PEM", "-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n", string(one.Key)} {
			writeFile(t, path, []byte(bad))
			check(one.Bundle)
		}
		// A private key in the file is not published.
		writeFile(t, path, []byte("# ours\n"+string(two.Bundle)+string(two.Key)+string(one.Bundle)))
		check([]byte(string(two.Bundle) + string(one.Bundle)))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check([]byte(string(two.Bundle) + string(one.Bundle)))
	})
}

func TestBundlesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ca.crt")
	for content, want := range map[string]string{
		"": "contains no PEM-encoded certificate",
		"-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n": "parsing a certificate in " + path,
	} {
		writeFile(t, path, []byte(content))
		if _, err := readBundle(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("content %q: error = %v, want %q", content, err, want)
		}
	}
	if _, err := readBundle(dir); err == nil {
		t.Error("a directory is accepted as a bundle")
	}
}
