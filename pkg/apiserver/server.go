// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
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
	"github.com/configdep/configdep/pkg/registry/pods"
	"github.com/configdep/configdep/pkg/registry/reload"
)

// Server is the aggregated API server, what feeds it, and the controller.
type Server struct {
	generic        *genericapiserver.GenericAPIServer
	options        *Options
	client         kubernetes.Interface
	reader         *ingest.Reader
	drain          *drain
	certificates   *certificates
	webhook        *webhook
	unregistration *unregistration
	index          *ingest.Index
	views          *configdependency.Views
	controller     *controller.Controller
	broadcaster    record.EventBroadcaster
	namespaces     corev1listers.NamespaceLister
}

// New makes a Server.
func (c CompletedConfig) New() (*Server, error) {
	views := configdependency.NewViews(int(c.options.HistoryBytes.Value()), clock.RealClock{})
	c.generic.StorageObjectCountTracker = objectCounts{views.Size}
	generic, err := c.generic.New("configdep-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("creating the generic API server: %w", err)
	}
	s := &Server{
		generic: generic, options: c.options, client: c.client, reader: c.reader, drain: c.drain,
		certificates: c.certificates, webhook: c.webhook, unregistration: c.unregistration, broadcaster: record.NewBroadcaster(), views: views,
		namespaces: c.generic.SharedInformerFactory.Core().V1().Namespaces().Lister(),
	}
	sinks := notify.Sinks{
		notify.KubernetesEvents{Recorder: s.broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "configdep"})},
		notify.Metrics{},
	}
	s.controller = controller.New(controller.Config{
		Client:  c.workloads,
		Sink:    sinks,
		Clock:   clock.RealClock{},
		Workers: c.options.ConcurrentReloads,

		NoRevisions: !c.options.ControllerRevisions,
	})
	views.SetStandby(s.controller)
	s.index = ingest.NewIndex(clock.RealClock{}, s.views, s.controller)
	s.index.SetDefaults(c.options.Reload)
	s.index.Within(c.options.scope())

	group := newAPIGroup()
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"configdependencies": configdependency.NewREST(s.views),
		"configdependencies/reload": &reload.REST{
			Views:  s.views,
			Index:  s.index,
			Client: c.workloads,
			Sink:   sinks,
			Clock:  clock.RealClock{},
		},
		"configdependencies/pods": pods.NewREST(pods.Config{
			Views:  s.views,
			Index:  s.index,
			Client: c.workloads,
			Clock:  clock.RealClock{},

			NoRevisions: !c.options.ControllerRevisions,
		}),
	}
	if err := generic.InstallAPIGroup(&group); err != nil {
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
// first; what feeds the index outlives the drain, so that nothing stale is served in it.
func (s *Server) Run(ctx context.Context) error {
	feed, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.broadcaster.StartStructuredLogging(2)
	events := &corev1client.EventSinkImpl{Interface: s.client.CoreV1().Events("")}
	s.broadcaster.StartRecordingToSink(&deferredEventSink{EventSink: events, busy: s.controller.Busy, clock: clock.RealClock{}})
	defer s.broadcaster.Shutdown()

	var feeding, leading sync.WaitGroup
	feeding.Go(func() { s.index.Run(feed, s.reader, s.client.CoreV1().Secrets(s.options.Namespace), s.begin) })
	feeding.Go(func() { s.views.Run(feed) })
	feeding.Go(func() { s.giveBack(feed) })
	defer feeding.Wait()
	defer stop()
	if err := s.certificates.load(ctx); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was to end before it had begun
		}
		return err
	}
	if err := checkKubernetes(ctx, s.client.Discovery()); err != nil {
		return err
	}
	if err := s.webhook.start(feed, &feeding, s.reviews(), s.drain); err != nil {
		return err
	}
	feeding.Go(func() { s.certificates.watch(feed) })
	feeding.Go(func() { s.unregistration.watch(feed) })
	leading.Go(func() { s.lead(ctx) })
	defer leading.Wait()
	s.drain.beginWithin(ctx, s.generic.ShutdownDelayDuration, s.views.Drain)
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// begin makes everything start over with another key of the hashes.
func (s *Server) begin(d *dependency.Digester) {
	s.webhook.path.follow(d)
	s.views.Reset()
}

// lead runs the controller and keeps the certificates, on one replica at a time. A replica
// that has yet to read the cluster could do nothing, and would keep others from it.
func (s *Server) lead(ctx context.Context) {
	synced := func(context.Context) (bool, error) { return s.index.Synced() == nil, nil }
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, synced) != nil {
		return // the context is done
	}
	run := func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { s.certificates.lead(ctx) })
		wg.Go(func() { s.webhook.path.lead(ctx) })
		s.controller.Run(ctx, s.index)
		wg.Wait()
	}
	if o := s.options.LeaderElection; o.LeaderElect {
		election := controller.Election{
			Lock:          s.lease(),
			LeaseDuration: o.LeaseDuration.Duration,
			RenewDeadline: o.RenewDeadline.Duration,
			RetryPeriod:   o.RetryPeriod.Duration,
			StandBy:       func(ctx context.Context) { s.controller.StandBy(ctx, s.index) },
			AnotherLeads:  s.controller.AnotherLeads,
		}
		election.Run(ctx, run)
		return
	}
	run(ctx)
}

// lease returns the Lease that the leader holds. The identity differs between two
// processes on one host.
func (s *Server) lease() resourcelock.Interface {
	host, err := os.Hostname()
	if err != nil {
		host = "configdep"
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.options.Namespace, Name: s.options.LeaderElection.ResourceName},
		Client:     s.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
}

// WorkloadStates implements metrics.State.
func (s *Server) WorkloadStates() map[string]int {
	out := map[string]int{}
	for state, n := range s.views.States() {
		out[string(state)] = n
	}
	return out
}

// IndexSize implements metrics.State.
func (s *Server) IndexSize() (workloads, sources int) { return s.index.Size() }

// LastProgress implements metrics.State.
func (s *Server) LastProgress() map[string]time.Time { return s.index.LastProgress() }

// Revisions implements metrics.State.
func (s *Server) Revisions() (lag uint64, oneCounter bool) {
	p := s.index.Progress()
	return p.Latest - p.Watermark, p.OneCounter
}

// Watches implements metrics.State.
func (s *Server) Watches() (open, events int) { return s.views.Watches() }

// CertificateExpiry implements metrics.State.
func (s *Server) CertificateExpiry() time.Time { return expiry(s.generic.SecureServingInfo.Cert) }

// MissingSecrets implements metrics.State.
func (s *Server) MissingSecrets() map[string]bool {
	missing := map[string]bool{ingest.KeySecret: s.index.KeyMissing()}
	if s.options.Certificate.Manage {
		missing[s.options.Certificate.Secret] = s.certificates.missing()
	}
	return missing
}
