// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/await"
)

// Every kind of upgrade preserves the content that the server has written to the Secrets of the chart, which the chart
// creates empty: when Helm replaces a Secret, or creates it again after a deletion, the server restores its content. A
// new installation with the same name continues to use it.
func TestUpgradesLeaveWhatTheServerKeeps(t *testing.T) {
	r := &release{name: "configdep-apiserver", dir: t.TempDir(), api: newEndpoint(t), webhook: newEndpoint(t), values: []string{quick}, authorities: managedAuthorities}
	if err := plugin(filepath.Join(r.dir, "plugins")); err != nil {
		t.Fatal(err)
	}
	makeNamespaces(t, namespace, "shop", "other")
	r.helm(t, "install")
	running := r.startReplica(t)
	kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout=2m")
	r.checkBundles(t, true)
	kept := r.awaitKept(t, 3)
	base := r.values
	for n, way := range []struct {
		name   string
		before func(*testing.T)
		args   []string
	}{
		{name: "server-side, as in Helm 4"},
		{name: "server-side, with fields of other owners", args: []string{"--force-conflicts"}},
		{name: "client-side, as in Helm 3", args: []string{"--server-side=false"}},
		{name: "client-side again"},
		{name: "replaced", args: []string{"--force-replace", "--server-side=false"}},
		{name: "after the Secrets were deleted", before: func(t *testing.T) {
			t.Helper()
			kubectl(t, "-n", namespace, "delete", "secret", "configdep-hmac-key", "configdep-serving-cert")
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			if way.before != nil {
				way.before(t)
			}
			// The upgrade must write to every object.
			round := fmt.Sprintf("round-%d", n)
			r.values = append(slices.Clone(base), "commonAnnotations.round="+round)
			r.helm(t, "upgrade", way.args...)
			for _, o := range []string{"secret/configdep-hmac-key", "secret/configdep-serving-cert", "configmap/configdep-serving-ca"} {
				if got := kubectl(t, "-n", namespace, "get", o, "-o", "jsonpath={.metadata.annotations.round}"); got != round {
					t.Errorf("%s has not been written: annotation round = %q", o, got)
				}
			}
			r.checkKept(t, kept)
		})
	}
	running.checkLog()
	r.uninstall(t)
	running.terminate()
	running.awaitEnd()
	r.values = base
	r.helm(t, "install")
	again := r.startReplica(t)
	kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout=2m")
	r.checkKept(t, kept)
	again.checkLog()
	r.uninstall(t)
	again.terminate()
	again.awaitEnd()
	kubectl(t, "delete", "namespace", "shop", "other", namespace, "--timeout=2m")
}

// kept is the content that the server keeps in its namespace, by object, and the number of objects with content.
type kept struct {
	objects map[string]string
	filled  int
}

func (r *release) kept(t *testing.T) kept {
	t.Helper()
	k := kept{objects: map[string]string{}}
	for _, o := range []string{"secret/configdep-hmac-key", "secret/configdep-serving-cert", "configmap/configdep-serving-ca"} {
		k.objects[o] = kubectl(t, "-n", namespace, "get", o, "--ignore-not-found", "-o", "jsonpath={.type} {.data}")
		if strings.Contains(k.objects[o], "{") {
			k.filled++
		}
	}
	return k
}

// awaitKept waits until some objects are filled.
func (r *release) awaitKept(t *testing.T, filled int) (k kept) {
	t.Helper()
	await.Until(t, "the server has filled its objects", func(context.Context) error {
		if k = r.kept(t); k.filled != filled {
			return fmt.Errorf("%d objects are filled, want %d", k.filled, filled)
		}
		return nil
	})
	return k
}

// checkKept waits until the content is as before. It never prints the content.
func (r *release) checkKept(t *testing.T, before kept) {
	t.Helper()
	await.Until(t, "the content of the server's objects is as before", func(context.Context) error {
		now := r.kept(t)
		for name, content := range before.objects {
			if now.objects[name] != content {
				return fmt.Errorf("%s differs: %d bytes, want %d", name, len(now.objects[name]), len(content))
			}
		}
		return nil
	})
}
