// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_RestartIsDatedByItsPatch: the minimum interval begins with the patch, as listing the pods
// to evict may take some time.
func TestReconcile_RestartIsDatedByItsPatch(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := true
		c.intercept("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if first {
				first = false
				<-time.After(10 * time.Second)
			}
			return false, nil, nil
		})
		aboutToRecreate(c)
		begin := time.Now()
		c.advance(time.Minute)
		d, err := c.client.AppsV1().Deployments(namespace).Get(c.t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var last policy.LastReload
		if err := json.Unmarshal([]byte(d.Annotations[policy.LastReloadAnnotation]), &last); err != nil {
			t.Fatal(err)
		}
		if took := last.Time.Sub(begin); took < 10*time.Second {
			t.Errorf("the time of the restart is %v after the change of content", took)
		}
	})
}

// TestReconcile_StrategyThatIsNotAllowed: no pods are evicted, which is reported once, even if pods were being evicted when the
// strategy was disabled. When the strategy is enabled again, the eviction continues.
func TestReconcile_StrategyThatIsNotAllowed(t *testing.T) {
	const told = `Warning ConfigStrategyNotAllowed Deployment/shop/web: Annotation configdep.io/strategy="recreate" is not allowed: ` +
		`configdep is installed without this strategy (--strategies). Automatic restarts are on hold until this is fixed.`
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.resign()
		c.defaults.Strategies = []policy.Strategy{policy.Annotate}
		c.newProcess()
		c.synced()
		c.lead()
		c.replace(true)
		c.set(secret("db", "3"))
		c.advance(10 * time.Minute)
		c.expect("it is switched off")
		c.expectState("it is switched off", policy.Blocked, policy.ReasonStrategyNotAllowed)
		c.expectEvents("it is switched off", told)
		c.resign()
		c.defaults.Strategies = nil
		c.newProcess()
		c.synced()
		c.lead()
		c.advance(time.Minute)
		if got := c.took(); len(got) == 0 || !strings.HasSuffix(got[0], " recreate web") {
			t.Errorf("requests once the strategy is allowed again = %v", got)
		}
	})
}
