// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/kind"
)

// slowGraph takes a second of the fake clock to answer, so that all requests that do not wait for each other have read the
// workload before one of them patches it.
type slowGraph struct{ stubGraph }

func (g slowGraph) Read(f func(decide.Evaluator)) bool {
	<-time.After(time.Second)
	return g.stubGraph.Read(f)
}

// Many requests for one workload read and patch it once each.
func TestRequestsForOneWorkloadTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(kind.Deployment)
		s := newServer(view)
		s.Index = slowGraph{s.Index.(stubGraph)}
		version := int64(7)
		live := func() *appsv1.Deployment {
			return testDeployment(func(o *appsv1.Deployment) {
				o.ResourceVersion, o.Generation = strconv.FormatInt(version, 10), version
			})
		}
		s.client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) { return true, live(), nil })
		s.client.PrependReactor("patch", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
			var sent struct {
				Metadata struct{ ResourceVersion string }
			}
			if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &sent); err != nil {
				return true, nil, err
			}
			if sent.Metadata.ResourceVersion != live().ResourceVersion {
				return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
			}
			version++
			return true, live(), nil
		})
		const requests = 10 // as many events fit into the recorder
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				if _, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent := len(s.patches()); sent != requests || version != 7+requests {
			t.Errorf("%d patches for %d requests; version %d", sent, requests, version)
		}
		if len(s.turns.of) != 0 {
			t.Errorf("%d workloads are kept", len(s.turns.of))
		}
	})
}

// A request that waits for its turn for too long, or whose client is gone, restarts nothing, and is refused. Dry runs wait for each other,
// and nothing waits for requests of the other kind or for other workloads.
func TestARequestDoesNotGetItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(kind.Deployment)
		s := newServer(view, testDeployment())
		key := s.Client.Key("apps/v1", "Deployment", "shop", "web")
		dryRun := []string{metav1.DryRunAll}
		endDry := s.turns.take(t.Context(), turnKey{key, true})
		end := s.turns.take(t.Context(), turnKey{key, false})
		for limit, options := range map[time.Duration]metav1.CreateOptions{time.Second: {}, time.Minute: {}, time.Hour: {DryRun: dryRun}} {
			ctx, cancel := context.WithTimeout(genericapirequest.WithNamespace(t.Context(), "shop"), limit)
			began := time.Now()
			_, err := s.Create(ctx, view.Name, &v1alpha1.Reload{}, nil, &options)
			if seconds, is := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !is || seconds != 1 || len(s.client.Actions()) != 0 {
				t.Errorf("%v, after %d requests", err, len(s.client.Actions()))
			}
			if took := time.Since(began); took != min(limit, maxWait) {
				t.Errorf("it has waited for %v", took)
			}
			cancel()
		}
		endDry()
		if _, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: dryRun}); err != nil {
			t.Errorf("a dry run: %v", err)
		}
		s.turns.take(t.Context(), turnKey{s.Client.Key("apps/v1", "Deployment", "shop", "api"), false})()
		end()
		if _, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if len(s.turns.of) != 0 {
			t.Errorf("%d workloads are kept", len(s.turns.of))
		}
	})
}
