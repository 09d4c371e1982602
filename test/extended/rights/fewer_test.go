// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/test/await"
)

// A server without permission to evict pods does not request it. A workload with the strategy recreate is not restarted. What
// happened while no server ran is known without further rights.
func TestFewerRights(t *testing.T) {
	replica, s, begin := installed(t, "default")
	view := func(ctx context.Context, name string) (*v1alpha1.ConfigDependency, error) {
		return directly(t, replica).ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, name, metav1.GetOptions{})
	}
	blocked := func(ctx context.Context) error {
		found, err := view(ctx, "deployment.recreated")
		if err == nil && (found.Status.State != v1alpha1.StateBlocked || found.Status.Reason != decide.ReasonStrategyNotAllowed) {
			err = fmt.Errorf("state = %s, %s: %s", found.Status.State, found.Status.Reason, found.Status.Message)
		}
		return err
	}
	restarted := func(name, trigger string) {
		t.Helper()
		await.Until(t, name+" is restarted for "+trigger, func(ctx context.Context) error {
			found, err := view(ctx, name)
			if err == nil && (found.Status.LastReload == nil || found.Status.LastReload.Trigger != trigger || found.Status.State != v1alpha1.StateInSync) {
				err = fmt.Errorf("status = %+v", found.Status)
			}
			return err
		})
	}
	await.Until(t, "a workload with the strategy recreate is blocked", blocked)
	await.Until(t, "the other workloads are recorded", func(ctx context.Context) error {
		found, err := view(ctx, "deployment.web")
		if err == nil && found.Status.RecordedHash == "" {
			err = errors.New("not recorded yet")
		}
		return err
	})
	if err := s.setPassword(t.Context(), "db"); err != nil {
		t.Fatal(err)
	}
	restarted("deployment.web", "Secret/db")
	restarted("daemonset.logs", "Secret/db")
	if err := blocked(t.Context()); err != nil {
		t.Error(err)
	}

	replica.Kill()
	if err := errors.Join(s.whileAway(t.Context()), replica.Start(), replica.AwaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it is known that the pods of the template that was written after the content have read that", func(ctx context.Context) error {
		found, err := view(ctx, "statefulset.away")
		if err == nil && (found.Status.State != v1alpha1.StateInSync || found.Status.RecordedHash != found.Status.ConfigHash || found.Status.LastReload != nil) {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		return err
	})
	// It needs no such right to know the current template revision of a DaemonSet.
	pods, err := directly(t, replica).ConfigdepV1alpha1().ConfigDependencies(s.namespace).GetPods(t.Context(), "daemonset.logs", metav1.GetOptions{})
	if err != nil || len(pods.Pods) == 0 || pods.TemplateRevision == "" {
		t.Errorf("pods = %+v (%v)", pods, err)
	}

	found, _, err := calls(begin)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, c := range found {
		if c.User.Username != account {
			continue
		}
		asked++
		if c.resource() == "pods/eviction" || c.ResponseStatus.Code == 403 {
			t.Errorf("the server requested %s", &c)
		}
	}
	if asked == 0 {
		t.Error("the server requested nothing")
	}
}
