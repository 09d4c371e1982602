// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

const keySecret = "configdep-hmac-key"

// keeping are the objects that manifests and the chart create empty, and the server fills.
var keeping = []string{"secret/" + keySecret, "secret/" + install.CertificateSecret, "configmap/configdep-serving-ca"}

// A way of applying the manifests or the chart again. The value of round is new each time, so that every object is written.
type way struct {
	name   string
	delete []string // objects that are deleted before
	args   []string
	renews bool // what is in the Secrets is emptied: the server restores the key, and issues another certificate
}

// Every upgrade by helm preserves the content that the server keeps: when Helm creates a Secret again after
// a deletion, the server restores the key of the hash. A new installation with the same name continues to use it.
func TestKept_ByHelm(t *testing.T) {
	r := newRelease(t, install.Name, "")
	r.helm(t, "install")
	r.start(t)
	r.available(t)
	before, values := awaitKept(t, len(keeping)), r.values
	again(t, before, func(round string, args []string) {
		r.values = append(slices.Clone(values), "commonAnnotations.round="+round)
		r.helm(t, "upgrade", args...)
	},
		way{name: "server-side, as in Helm 4"},
		way{name: "server-side, with fields of other owners", args: []string{"--force-conflicts"}},
		way{name: "client-side, as in Helm 3", args: []string{"--server-side=false"}},
		way{name: "client-side again"},
		way{name: "after the Secrets were deleted", delete: keeping[:2], renews: true},
	)
	r.uninstall(t, 2)
	r.values = values
	r.helm(t, "install")
	r.start(t)
	r.available(t)
	checkKept(t, before)
	r.uninstall(t, 2)
	r.remove(t)
}

// Applying the manifests again does not empty the Secrets, whether kubectl applies on either side or GitOps tools do, which apply
// as kubectl does. Tools that replace objects empty the Secrets, and so do users who delete them: then the server restores the key of the hash.
func TestKept_ByKubectl(t *testing.T) {
	server := installed(t, install.Options{ManagedCertificates: true})
	before := awaitKept(t, len(keeping))
	manifests := filepath.Join(server.Dir(), "again")
	if err := os.MkdirAll(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	again(t, before, func(round string, args []string) {
		kustomization := fmt.Sprintf(`{"resources": ["../%s"], "commonAnnotations": {"round": %q}}`, filepath.Base(server.Manifests()), round)
		if err := os.WriteFile(filepath.Join(manifests, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl(t, append(args, "-k", manifests)...)
	},
		way{name: "kubectl, as Argo CD", args: []string{"apply"}},
		way{name: "kubectl, server-side", args: []string{"apply", "--server-side", "--force-conflicts"}},
		way{name: "Flux", args: []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"}},
		way{name: "Argo CD, server-side", args: []string{"apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"}},
		way{name: "kubectl again", args: []string{"apply"}},
		way{name: "kubectl replace, as Argo CD with Replace=true", args: []string{"replace"}, renews: true},
		way{name: "deleted and applied again", delete: keeping, args: []string{"apply"}, renews: true},
	)
	undeploy(t)
	nothingLeft(t)
}

// again applies in different ways, and checks that each has written the objects and that their content is as before.
func again(t *testing.T, before kept, apply func(round string, args []string), ways ...way) {
	t.Helper()
	for n, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for _, o := range way.delete {
				kubectl(t, "-n", install.Namespace, "delete", o)
			}
			round := fmt.Sprintf("round-%d", n)
			apply(round, way.args)
			for _, o := range keeping {
				if got := kubectl(t, "-n", install.Namespace, "get", o, "-o", "jsonpath={.metadata.annotations.round}"); got != round {
					t.Errorf("%s has not been written: annotation round = %q", o, got)
				}
			}
			if way.renews {
				now := awaitKept(t, len(keeping))
				now["secret/"+keySecret] = before["secret/"+keySecret]
				maps.Copy(before, now)
			}
			checkKept(t, before)
		})
	}
}

// kept is the content that the server keeps in its namespace, by object.
type kept map[string]string

// awaitKept waits until some objects are filled.
func awaitKept(t *testing.T, filled int) (k kept) {
	t.Helper()
	await.Until(t, "the server has filled its objects", func(context.Context) error {
		k = kept{}
		n := 0
		for _, o := range keeping {
			k[o] = kubectl(t, "-n", install.Namespace, "get", o, "--ignore-not-found", "-o", "jsonpath={.type} {.data}")
			n += strings.Count(k[o], "{")
		}
		if n != filled {
			return fmt.Errorf("%d objects are filled, want %d", n, filled)
		}
		return nil
	})
	return k
}

// checkKept waits until the content is as before. It never prints the content.
func checkKept(t *testing.T, before kept) {
	t.Helper()
	for o, content := range before {
		await.Until(t, "the content of the server's objects is as before", func(context.Context) error {
			if now := kubectl(t, "-n", install.Namespace, "get", o, "--ignore-not-found", "-o", "jsonpath={.type} {.data}"); now != content {
				return fmt.Errorf("%s differs: %d bytes, want %d", o, len(now), len(content))
			}
			return nil
		})
	}
}
