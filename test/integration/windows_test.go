// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// While a window denies it, or a user holds the workload, nothing but a Reload restarts it, and the API says until when.
func TestWindows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	closes := time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)
	web := owned("web")
	web.Annotations["configdep.io/windows"] = fmt.Sprintf(`[{kind: Deny, schedule: %q, duration: 3h}]`, closes.Format("4 15 2 1 *"))
	s.create(web)
	s.view("deployment.web", applied)
	awaitAge(t, s.namespace, "web")
	closes = closes.Add(3 * time.Hour)
	s.write(db, "password", "y")
	s.view("deployment.web", is(v1alpha1.StatePending, "Window"), func(o *v1alpha1.ConfigDependency) error {
		if due := o.Status.RestartTime; due == nil || !due.Time.Equal(closes) {
			return fmt.Errorf("due at %v, want %v", due, closes)
		}
		return nil
	})
	if r := s.plugin("reload", "deploy/web", "--wait"); r.code != pluginDone {
		t.Errorf("reload: %+v", r)
	}
	before := s.templates("web")

	s.edit("web", func(d *appsv1.Deployment) {
		delete(d.Annotations, "configdep.io/windows")
		d.Annotations["configdep.io/hold"] = "INC-4711"
	})
	s.write(db, "password", "z")
	s.view("deployment.web", is(v1alpha1.StateBlocked, "OnHold"), func(o *v1alpha1.ConfigDependency) error {
		if want := "Secret/db has changed. No restart begins while there is the annotation configdep.io/hold. It says: INC-4711"; !strings.HasPrefix(o.Status.Message, want) {
			return errors.New(o.Status.Message)
		}
		return nil
	})
	if after := s.templates("web"); after != before {
		t.Errorf("%d templates, want %d", after, before)
	}
	s.edit("web", func(d *appsv1.Deployment) { delete(d.Annotations, "configdep.io/hold") })
	s.view("deployment.web", applied, restartedFor(string(db)))
}
