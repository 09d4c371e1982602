// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// A release with reload.observe runs beside another tool, whose restarts this test makes: it restarts nothing, and writes nothing to
// workloads, but says what it would restart until the other tool has. An upgrade that sets it to false restarts nothing either, nor
// does the server then restart what the other tool has. Nor does an uninstallation. See docs/migrate.md.
func TestObserve(t *testing.T) {
	// The other values that say how workloads are restarted have to suit the server as well.
	r := newRelease(t, install.Name, "", "reload.observe=true", "reload.onCreate=true", "reload.onDelete=true", "reload.strategy=env-var")
	if out := r.helm(t, "install"); !strings.Contains(out, "NO WORKLOAD IS RESTARTED, because reload.observe is set") {
		t.Errorf("the output of helm does not say that nothing is restarted:\n%s", out)
	}
	observer := r.start(t)
	r.available(t)

	settle := map[string]string{"reloader.stakater.com/auto": "true", policy.SettleAnnotation: "10s"}
	w := newWeb(t, "shop", settle)
	restarts := 0
	// restart changes the template as Stakater Reloader does, and waits until the server shows the content as that of the pods.
	restart := func() {
		restarts++
		if err := await.NextSecond(t.Context()); err != nil { // simulated pods start in the second in which they are created
			t.Fatal(err)
		}
		kubectl(t, "patch", "deployment", w.Name, "-n", "shop", "--field-manager=Reloader", "-p", fmt.Sprintf(
			`{"spec": {"template": {"spec": {"containers": [{"name": "app", "env": [{"name": "STAKATER_DB_SECRET", "value": "%d"}]}]}}}}`, restarts))
		w.Deployment = w.now(t)
		await.Until(t, "the server knows that the new pods have read the content", func(ctx context.Context) error {
			o, err := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies("shop").Get(ctx, "deployment."+w.Name, metav1.GetOptions{})
			if err == nil && (o.Status.State != v1alpha1.StateInSync || o.Status.Sources[0].ResourceVersion != w.secret.ResourceVersion) {
				err = fmt.Errorf("it is %s (%s) with %+v", o.Status.State, o.Status.Message, o.Status.Sources)
			}
			return err
		})
	}
	unchanged := func(when string) {
		t.Helper()
		if diff := cmp.Diff(w.Spec, w.now(t).Spec); diff != "" {
			t.Errorf("%s, the workload has changed (-want +got):\n%s", when, diff)
		}
	}
	w.change(t)
	w.await(t, "jsonpath={.status.reason}=Observed")
	unchanged("with reload.observe")
	restart()
	unchanged("with reload.observe, after a restart")
	for key := range maps.Keys(w.now(t).Annotations) {
		if strings.HasPrefix(key, record.Prefix) && settle[key] == "" {
			t.Errorf("the server has written %s", key)
		}
	}

	r.values[0] = "reload.observe=false"
	if out := r.helm(t, "upgrade"); strings.Contains(out, "NO WORKLOAD IS RESTARTED") {
		t.Errorf("the output of helm says that nothing is restarted:\n%s", out)
	}
	r.end(t, observer)
	r.start(t)
	await.Until(t, "the content of the moment is recorded", func(context.Context) error {
		if w.now(t).Annotations[record.ConfigHashAnnotation] == "" {
			return errors.New("no hash yet")
		}
		return nil
	})
	unchanged("without reload.observe")
	w.change(t)
	restart()
	unchanged("while both run, after a restart by the other tool")
	r.uninstall(t, 2)
	unchanged("after the uninstallation")
	r.remove(t)
}
