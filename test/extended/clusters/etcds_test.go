// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/hop"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/seeds"
)

// Where kube-apiserver stores one resource in a separate etcd, that etcd has its own revision counter, so versions of one replica
// have no meaning for the other.
func TestOneResourceInAnotherEtcd(t *testing.T) {
	t.Parallel() // most of the time it waits
	const resource = "configmaps"
	other := start(t, controlplane.Options{EtcdOnly: true})
	s := newCounters(t, "--etcd-servers-overrides=/"+resource+"#"+other.EtcdURL(), "--etcd-prefix=/with-"+resource)
	s.awaitNotice()
	for i, r := range s.server.Replicas {
		s.ownVersions(s.clients[i], r)
	}
	s.versionsOfOthers()
	s.manyChanges()
	s.noticedOnce()
}

// counters is a cluster with two replicas, and a client of each.
type counters struct {
	t       *testing.T
	cluster *controlplane.ControlPlane
	server  *install.Installation
	clients []configdepv1alpha1.ConfigdepV1alpha1Interface
	churn   *hop.Churn
}

// crowd is the number of workloads in each namespace.
const crowd = 60

func newCounters(t *testing.T, apiServerArgs ...string) *counters {
	t.Helper()
	s := &counters{t: t}
	s.cluster = start(t, controlplane.Options{APIServerOnly: true, APIServerArgs: apiServerArgs})
	s.server = installed(t, s.cluster, install.Options{Args: []string{"--max-version-lag=5s"}})
	for _, r := range s.server.Replicas {
		s.clients = append(s.clients, s.client(r.AdminConfig()))
	}
	core, err := dynamic.NewForConfig(s.cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	asked, err := seeds.Read()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d; again: %s=%[1]d", asked.First, seeds.Variable)
	s.churn = hop.NewChurn(core, asked.First, crowd, "one", "two")
	if err := s.churn.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *counters) client(config *rest.Config) configdepv1alpha1.ConfigdepV1alpha1Interface {
	s.t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client.ConfigdepV1alpha1()
}

// notices returns how often a replica has logged as an error that there are several revision counters.
func (s *counters) notices(r *install.Replica) (n int) {
	s.t.Helper()
	log, err := os.ReadFile(r.Log())
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "do not share one etcd revision counter") && strings.HasPrefix(line, "E") {
			n++
		}
	}
	return n
}

func (s *counters) awaitNotice() {
	s.t.Helper()
	for _, r := range s.server.Replicas {
		await.Until(s.t, r.Name()+" has noticed", func(context.Context) error {
			if s.notices(r) == 0 {
				return errors.New("no log entry yet")
			}
			return nil
		})
	}
}

func (s *counters) noticedOnce() {
	s.t.Helper()
	for _, r := range s.server.Replicas {
		if n := s.notices(r); n != 1 {
			s.t.Errorf("%s has logged %d times that there are several revision counters, want once", r.Name(), n)
		}
	}
}

func (s *counters) step() {
	s.t.Helper()
	if _, err := s.churn.Step(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// awaitTruth waits until both replicas show the current state, and returns it.
func (s *counters) awaitTruth() (views map[string]*v1alpha1.ConfigDependency) {
	s.t.Helper()
	for i, c := range s.clients {
		await.Until(s.t, fmt.Sprintf("replica %d shows the current state", i), func(ctx context.Context) (err error) {
			if views, err = hop.List(ctx, c); err != nil {
				return err
			}
			return s.churn.Check(ctx, views)
		})
	}
	return views
}

// ownVersions follows one replica with its own versions: a follower misses nothing and never has to list again,
// wherever the watch is cut, and whether the list is in one answer or in pages.
func (s *counters) ownVersions(client configdepv1alpha1.ConfigdepV1alpha1Interface, r *install.Replica) {
	s.t.Helper()
	h, err := hop.New(r.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	defer h.Close()
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var followers []*hop.Follower
	for _, limit := range []int64{0, 7} {
		f := &hop.Follower{Client: s.client(h.Config(r.AdminConfig())).ConfigDependencies(""), Options: metav1.ListOptions{Limit: limit}}
		followers = append(followers, f)
		running.Go(func() { f.Run(ctx) })
		await.Until(s.t, "a follower has listed", func(context.Context) error {
			s.step() // between the pages too
			if tally, _ := f.Tally(); tally.Lists == 0 {
				return errors.New("no list yet")
			}
			return nil
		})
	}
	for n := range 5 {
		for _, f := range followers {
			await.Until(s.t, "a follower watches again", func(context.Context) error {
				if now, _ := f.Tally(); now.Watches <= n {
					return errors.New("no new watch yet")
				}
				return nil
			})
		}
		s.step()
		h.Cut()
		s.step()
	}
	s.awaitTruth()
	for i, f := range followers {
		await.Until(s.t, "a follower holds the current state", func(ctx context.Context) error {
			views, err := hop.List(ctx, client)
			if err != nil {
				return err
			}
			return hop.Diff(views, f.Copy())
		})
		tally, err := f.Tally()
		if s.t.Logf("%s: follower %d: %+v", r.Name(), i, tally); err != nil || tally.Lists != 1 || tally.Watches < 5 {
			s.t.Errorf("%s: follower %d: %+v, %v", r.Name(), i, tally, err)
		}
	}
}

// versionsOfOthers checks that versions of the other replica are expired: a watch gets that as an event, as
// clients expect. A get, for which clients do not expect that error, gets a timeout because the version has not
// been read yet.
func (s *counters) versionsOfOthers() {
	s.t.Helper()
	ctx := s.t.Context()
	for i, c := range s.clients {
		list, err := s.clients[1-i].ConfigDependencies("one").List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			s.t.Fatal(err)
		}
		version, name := list.ResourceVersion, list.Items[0].Name
		for what, options := range map[string]metav1.ListOptions{
			"a watch": {ResourceVersion: version},
			"a watch with initial events": {
				ResourceVersion: version, SendInitialEvents: new(true), AllowWatchBookmarks: true,
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			},
		} {
			w, err := c.ConfigDependencies("one").Watch(ctx, options)
			if err != nil {
				s.t.Errorf("%s: %v", what, err)
				continue
			}
			e := <-w.ResultChan()
			if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
				s.t.Errorf("%s from a version of the other replica: %s %+v", what, e.Type, e.Object)
			}
			w.Stop()
		}
		for what, options := range map[string]metav1.ListOptions{
			"a list": {ResourceVersion: version}, "a page": {Limit: 1, Continue: list.Continue},
			"an exact version": {ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
		} {
			if _, err := c.ConfigDependencies("one").List(ctx, options); !apierrors.IsResourceExpired(err) {
				s.t.Errorf("%s at a version of the other replica: error = %v", what, err)
			}
		}
		if _, err := c.ConfigDependencies("one").Get(ctx, name, metav1.GetOptions{ResourceVersion: version}); !apierrors.IsTimeout(err) || !storage.IsTooLargeResourceVersion(err) {
			s.t.Errorf("get at a version of the other replica: error = %v", err)
		}
	}
}

// manyChanges creates more events than versions can count while the watermark does not move, because nothing is
// written in the resource whose counter is behind.
func (s *counters) manyChanges() {
	s.t.Helper()
	events := 0
	for views := s.awaitTruth(); events < 2500; events += len(views) - 1 { // that of the server itself has no sources
		if err := s.churn.Touch(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
	s.awaitTruth()
	for i, r := range s.server.Replicas {
		s.ownVersions(s.clients[i], r)
	}
}
