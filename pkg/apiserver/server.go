// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/controller"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/registry/configdependency"
	"github.com/configdep/configdep/pkg/registry/plan"
	"github.com/configdep/configdep/pkg/registry/pods"
	"github.com/configdep/configdep/pkg/registry/reload"
	"github.com/configdep/configdep/pkg/wave"
)

// Server is the aggregated API server, with its index and the controller.
type Server struct {
	config       *completedConfig
	generic      *genericapiserver.GenericAPIServer
	index        *ingest.Index
	dependencies *configdependency.Views
	controller   *controller.Controller
	broadcaster  record.EventBroadcaster
}

// New returns a Server that is ready to run.
func (c CompletedConfig) New() (*Server, error) {
	s := &Server{config: c.completedConfig, broadcaster: record.NewBroadcaster()}
	recorder := s.broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "configdep"})
	c.certificates.events = recorder
	sinks := notify.Sinks{
		notify.KubernetesEvents{Recorder: recorder, Kinds: c.Scope.Kinds},
		notify.Metrics{},
	}
	for _, n := range c.notifications {
		sinks = append(sinks, n)
	}
	planner := wave.New(c.MaxRolloutsInProgress, clock.RealClock{}, func(changed, admitted []dependency.WorkloadKey) {
		s.dependencies.Recheck(changed)
		s.controller.Queue(slices.Concat(changed, admitted))
	})
	s.controller = controller.New(controller.Config{
		Client: c.Workloads, Sink: sinks, Clock: clock.RealClock{}, Workers: c.ConcurrentReloads, AdmissionPolicy: c.Lease + "-annotations", Planner: planner,
	})
	s.dependencies = configdependency.NewViews(c.HistoryBytes, c.Scope.Kinds, planner, clock.RealClock{})
	s.index = ingest.NewIndex(clock.RealClock{}, s.dependencies, s.controller)
	s.index.SetDefaults(c.Reload)
	s.index.Within(c.Scope)

	var err error
	c.generic.StorageObjectCountTracker = objectCounts(s.dependencies.Size)
	if s.generic, err = c.generic.New("configdep-apiserver", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, fmt.Errorf("creating the generic API server: %w", err)
	}
	reloads := &reload.REST{
		Views: s.dependencies, Index: s.index, Client: c.Workloads, Dialects: c.Reload.Dialects, Observe: c.Reload.Observe, Sink: sinks, Clock: clock.RealClock{},
	}
	group := newAPIGroup()
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"configdependencies":          configdependency.NewREST(s.dependencies, c.Scope.Kinds),
		"configdependencies/reload":   reloads,
		"configdependencies/approval": reload.Approvals{REST: reloads},
		"configdependencies/pods":     pods.NewREST(pods.Config{Views: s.dependencies, Index: s.index, Kinds: c.Scope.Kinds, Clock: clock.RealClock{}}),
		"configdependencies/plan":     plan.NewREST(plan.Config{Views: s.dependencies, Index: s.index, MaxInProgress: c.MaxRolloutsInProgress, Clock: clock.RealClock{}}),
	}
	if err := s.generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("installing the API group: %w", err)
	}
	if err := s.addHealthChecks(); err != nil {
		return nil, fmt.Errorf("adding health checks: %w", err)
	}
	metrics.Register()
	metrics.Observe(s)
	return s, nil
}

// Run serves until the context is done and the server has drained. The controller ends
// first. The index is kept up to date until the drain is over, so that no stale data is served.
func (s *Server) Run(ctx context.Context) error {
	if s.config.standalone != nil {
		end, err := s.config.standalone.begin(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	defer s.config.notifications.start(ctx)() // until nothing can happen to workloads any longer
	feed, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.broadcaster.StartStructuredLogging(2)
	events := &corev1client.EventSinkImpl{Interface: s.config.Client.CoreV1().Events("")}
	s.broadcaster.StartRecordingToSink(&deferredEventSink{EventSink: events, busy: s.controller.Busy, clock: clock.RealClock{}})
	defer s.broadcaster.Shutdown()

	var feeding, leading sync.WaitGroup
	feeding.Go(func() { s.index.Run(feed, s.config.Reader, s.config.key, s.dependencies.Reset) })
	feeding.Go(func() { s.dependencies.Run(feed) })
	feeding.Go(func() { s.giveBack(feed) })
	defer feeding.Wait()
	defer stop()
	for _, plain := range s.config.plain { // first, so that a start that takes long can be looked into
		if _, err := plain.Start(feed, &feeding); err != nil {
			return err
		}
	}
	if err := s.config.certificates.load(ctx); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the context was done before the server started
		}
		return err
	}
	if err := checkKubernetes(ctx, s.config.Client.Discovery()); err != nil {
		return err
	}
	feeding.Go(func() { s.config.certificates.watch(feed) })
	if s.config.standalone == nil {
		leading.Go(func() { s.lead(ctx) })
		defer leading.Wait()
	}
	s.config.drain.BeginWithin(ctx, s.generic.ShutdownDelayDuration, s.dependencies.Drain)
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// lead runs the controller and manages certificates, on one replica at a time. A replica
// waits until it has read the cluster: as the leader it could do nothing until then, and
// would prevent other replicas from leading.
func (s *Server) lead(ctx context.Context) {
	synced := func(context.Context) (bool, error) { return s.index.Synced() == nil, nil }
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, synced) != nil {
		return // the context is done
	}
	run := func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { s.config.certificates.lead(ctx) })
		wg.Go(func() { s.tellPolicies(ctx) })
		s.controller.Run(ctx, s.index)
		wg.Wait()
	}
	if o := s.config.LeaderElection; o.LeaderElect {
		election := controller.Election{
			Lock:          s.lease(),
			LeaseDuration: o.LeaseDuration,
			RenewDeadline: o.LeaseDuration * 2 / 3,
			RetryPeriod:   o.LeaseDuration * 2 / 15,
		}
		election.Run(ctx, run)
		return
	}
	run(ctx)
}

// lease returns the Lease that the leader holds. Its identity is unique to the process, as
// two processes can have the same host name.
func (s *Server) lease() resourcelock.Interface {
	host, err := os.Hostname()
	if err != nil {
		host = "configdep"
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.config.Namespace, Name: s.config.Lease},
		Client:     s.config.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
}
