// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// A release with reload.observe restarts nothing, and writes nothing to workloads, but says what it would restart. An upgrade that
// sets it to false restarts nothing either: the content of that moment is recorded.
func TestObserveByValue(t *testing.T) {
	r := &release{
		name: "configdep-apiserver", dir: t.TempDir(), api: newEndpoint(t), webhook: newEndpoint(t), authorities: managedAuthorities,
		// The other values that say how workloads are restarted have to suit the server as well.
		values: []string{"reload.observe=true", "reload.onCreate=true", "reload.onDelete=true", "reload.strategy=env-var", quick},
	}
	if err := plugin(filepath.Join(r.dir, "plugins")); err != nil {
		t.Fatal(err)
	}
	makeNamespaces(t, namespace, "shop", "other")
	if out := r.helm(t, "install"); !strings.Contains(out, "NO WORKLOAD IS RESTARTED, because reload.observe is set") {
		t.Errorf("the output of helm does not say that nothing is restarted:\n%s", out)
	}
	observer := r.startReplica(t)
	kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout=2m")
	r.checkBundles(t, true)

	secrets, deployments := client.CoreV1().Secrets("shop"), client.AppsV1().Deployments("shop")
	source, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}, Data: map[string][]byte{"password": []byte("one")}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web := workload("web-", source.Name)
	made, err := deployments.Create(t.Context(), web, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "wait", "--for=condition=InSync", "configdependency/deployment."+made.Name, "-n", "shop", "--timeout=2m")
	source.Data["password"] = []byte("two")
	if _, err := secrets.Update(t.Context(), source, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "wait", "--for=jsonpath={.status.reason}=Observed", "configdependency/deployment."+made.Name, "-n", "shop", "--timeout=2m")
	observed, err := deployments.Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for where, keys := range map[string][]string{
		"the workload": slices.Collect(maps.Keys(observed.Annotations)), "its template": slices.Collect(maps.Keys(observed.Spec.Template.Annotations)),
	} {
		for _, key := range keys {
			if strings.HasPrefix(key, policy.Prefix) && web.Annotations[key] == "" {
				t.Errorf("the server, or its webhook, has written %s to %s", key, where)
			}
		}
	}
	if observed.Generation != made.Generation {
		t.Errorf("generation = %d, want %d, as nothing is restarted", observed.Generation, made.Generation)
	}
	observer.checkLog()

	r.values = slices.Clone(r.values)
	r.values[0] = "reload.observe=false"
	if out := r.helm(t, "upgrade"); strings.Contains(out, "NO WORKLOAD IS RESTARTED") {
		t.Errorf("the output of helm says that nothing is restarted:\n%s", out)
	}
	observer.terminate()
	observer.awaitEnd()
	running := r.startReplica(t)
	await.Until(t, "the content of the moment is recorded", func(ctx context.Context) error {
		now, err := deployments.Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(made.Spec, now.Spec); diff != "" {
			t.Fatalf("switching on has changed the workload (-want +got):\n%s", diff)
		}
		if now.Annotations[policy.ConfigHashAnnotation] == "" {
			return fmt.Errorf("annotations = %v", now.Annotations)
		}
		return nil
	})
	running.checkLog()
	r.uninstall(t)
	running.terminate()
	running.awaitEnd()
	kubectl(t, "delete", "namespace", "shop", "other", namespace, "--timeout=2m")
}
