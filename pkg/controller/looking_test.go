package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestContentThatChangesWhileItsPodsAreLookedAt: what was found says nothing of an excursion that
// came later.
func TestContentThatChangesWhileItsPodsAreLookedAt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		first := true
		c.intercept("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !first {
				return false, nil, nil
			}
			first = false
			// The answer is as of now, and arrives half an hour later.
			pods := corev1.SchemeGroupVersion.WithResource("pods")
			list, err := c.client.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
			<-time.After(10 * time.Minute) // by the clock of the test
			c.set(secret("db", "9"))
			<-time.After(10 * time.Minute) // by the clock of the test
			c.started("web-1", "app")
			<-time.After(10 * time.Minute) // by the clock of the test
			c.set(secret("db", "1"))
			return true, list, err
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(3 * time.Hour)
		if got := c.kinds(); got != "mixed rollout" {
			t.Errorf("got %q: %+v", got, c.decision())
		}
	})
}

// TestContentThatChangesWheneverPodsAreLookedAt, and changes back: they are not looked at all the time.
func TestContentThatChangesWheneverPodsAreLookedAt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		looks := 0
		c.intercept("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			looks++
			c.set(secret("db", "9"))
			c.set(secret("db", "1"))
			return false, nil, nil
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(time.Minute)
		if looks < 10 || looks > 14 {
			t.Errorf("pods were looked at %d times in a minute", looks)
		}
		c.expect("nothing is known for certain")
	})
}

// TestContentThatChangesWhileARecordIsWritten, and changes back: the record was decided on before.
func TestContentThatChangesWhileARecordIsWritten(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		first := true
		c.intercept("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if first {
				first = false
				<-time.After(3 * time.Second)
				c.set(secret("db", "9"))
				<-time.After(3 * time.Second)
				c.started("web-1", "app")
				<-time.After(3 * time.Second)
				c.set(secret("db", "1"))
			}
			return false, nil, nil
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(3 * time.Hour)
		if got := c.kinds(); got != "verified mixed rollout" {
			t.Errorf("got %q: %+v", got, c.decision())
		}
	})
}

// TestContentThatChangesWhileARestartIsWritten, and changes back: the pods that it creates have read
// what is there then.
func TestContentThatChangesWhileARestartIsWritten(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		c.took()
		first := true
		c.intercept("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if first {
				first = false
				<-time.After(3 * time.Second) // by the clock of the test
				c.set(secret("db", "9"))
				<-time.After(3 * time.Second) // by the clock of the test
				c.set(secret("db", "2"))
			}
			return false, nil, nil
		})
		c.set(secret("db", "2"))
		c.advance(3 * time.Hour)
		if got := c.kinds(); got != "rollout" {
			t.Errorf("got %q: %+v", got, c.decision())
		}
		c.expectState("at last", policy.InSync, "ContentApplied")
	})
}
