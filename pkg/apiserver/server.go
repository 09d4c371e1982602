package apiserver

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep"
	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/registry/configdependency"
	"github.com/configdep/configdep/pkg/registry/reload"
)

// Server is the aggregated API server and what feeds it.
type Server struct {
	generic     *genericapiserver.GenericAPIServer
	client      kubernetes.Interface
	namespace   string
	farewell    *farewell
	index       *ingest.Index
	views       *configdependency.Views
	digester    atomic.Pointer[dependency.Digester]
	broadcaster record.EventBroadcaster
}

// New makes a Server.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.generic.New("configdep-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("creating the generic API server: %w", err)
	}
	views := configdependency.NewViews()
	s := &Server{
		generic:     generic,
		client:      c.client,
		namespace:   c.namespace,
		farewell:    c.farewell,
		index:       ingest.NewIndex(views, ingest.Streams()),
		views:       views,
		broadcaster: record.NewBroadcaster(),
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(configdep.GroupName, scheme, metav1.ParameterCodec, codecs)
	group.NegotiatedSerializer = textSerializer{codecs}
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = s.storage()
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("installing the API group: %w", err)
	}
	if err := s.addHealthChecks(); err != nil {
		return nil, fmt.Errorf("adding health checks: %w", err)
	}
	return s, nil
}

func (s *Server) storage() map[string]rest.Storage {
	return map[string]rest.Storage{
		"configdependencies": configdependency.NewREST(s.views),
		"configdependencies/reload": &reload.REST{
			Views:    s.views,
			Graph:    s.index,
			Client:   s.client,
			Recorder: s.broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "configdep"}),
			Clock:    clock.RealClock{},
			Digester: s.digester.Load,
		},
	}
}

// Run serves until the context is done and the server has drained. What feeds the index
// outlives the drain, so that nothing stale is served during it.
func (s *Server) Run(ctx context.Context) error {
	feed, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.broadcaster.StartStructuredLogging(2)
	s.broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: s.client.CoreV1().Events("")})
	defer s.broadcaster.Shutdown()

	done := make(chan struct{})
	go func() {
		defer close(done)
		s.feed(feed)
	}()
	s.farewell.beginAfter(ctx, s.generic.ShutdownDelayDuration/2)
	err := s.generic.PrepareRun().RunWithContext(ctx)
	stop()
	<-done
	return err
}

// feed loads the key of the hashes and then keeps the index equal to the cluster.
func (s *Server) feed(ctx context.Context) {
	digester, err := ingest.LoadDigester(ctx, s.client.CoreV1().Secrets(s.namespace))
	if err != nil {
		return // the context is done
	}
	s.digester.Store(digester)
	s.views.SetDigester(digester)
	s.index.Run(ctx, s.client, digester)
}
