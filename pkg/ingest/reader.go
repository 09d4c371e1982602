// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/follow"
)

// Reader reads resources from an API server. It decodes a response object by object while
// it arrives, and reduces each at once: no list is ever held in full, and values of
// ConfigMaps and Secrets are digested in place in the buffer. So a start is fast, and
// memory does not depend on content.
type Reader struct {
	base   *url.URL
	client *http.Client
	lag    time.Duration
	pace   pace
}

// NewReader returns a Reader that connects with a configuration. Watches last for the given time,
// which is how far it may lag behind on a resource to which nothing is written; at least MinVersionLag. NewReader does
// no I/O.
func NewReader(config *rest.Config, lag time.Duration) (*Reader, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating an HTTP client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the address of the API server: %w", err)
	}
	return &Reader{base, client, lag, defaultPace}, nil
}

// requests returns the client for requests of the stream. client-go builds their paths, and refuses a
// namespace that is not a path segment.
func (r *Reader) requests(s *stream) func(metav1.ListOptions) *rest.Request {
	version := schema.GroupVersion{Version: "v1"} // of the options
	form := runtime.ContentTypeProtobuf
	if s.json {
		form = runtime.ContentTypeJSON
	}
	client, err := rest.NewRESTClient(r.base, apiPath(s.resource.GroupVersion()), rest.ClientContentConfig{
		AcceptContentTypes: form,
		ContentType:        form,
		GroupVersion:       version,
		Negotiator:         runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), version), // of errors: objects are decoded here
	}, nil, r.client)
	if err != nil {
		panic(err) // client-go has no error to return here
	}
	return func(options metav1.ListOptions) *rest.Request {
		options.LabelSelector = s.labels
		options.FieldSelector = strings.Join(slices.DeleteFunc([]string{s.fields, options.FieldSelector}, func(f string) bool { return f == "" }), ",")
		return client.Get().NamespaceIfScoped(s.namespace, s.namespace != "").Resource(s.resource.Resource).VersionedParams(&options, scheme.ParameterCodec).
			SetHeader("Accept", s.accepts(form, !options.Watch))
	}
}

// apiPath returns the path of an API group and version.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

// revision returns the current revision of a stream: the revision of a list that selects a name which
// no object has. With a namespace, kube-apiserver looks up that one key; without, it would go through
// all objects.
func (r *Reader) revision(ctx context.Context, s *stream) (uint64, error) {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, "-")
	if s.namespace == "" && !s.ofCluster() {
		one = fields.AndSelectors(one, fields.OneTermEqualSelector(namespaceField, metav1.NamespaceSystem))
	}
	list, err := r.list(ctx, s, metav1.ListOptions{FieldSelector: one.String()})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

func (r *Reader) list(ctx context.Context, s *stream, options metav1.ListOptions) (*metav1.List, error) {
	answer, err := r.open(ctx, s, r.requests(s)(options))
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return readList(answer, s)
}

// open begins a request of the stream, and returns the answer.
func (r *Reader) open(ctx context.Context, s *stream, request *rest.Request) (io.ReadCloser, error) {
	answer, err := request.Stream(ctx)
	var failed *apierrors.StatusError
	if errors.As(err, &failed) && s.hushes() {
		hush(&failed.ErrStatus)
	}
	return answer, err
}

// lister returns what a reflector of the stream lists and watches by. Apply is called with each event of its watches, in order and never while it
// lists. It sends how long the last watch lasts that has begun.
func (r *Reader) lister(s *stream, watches chan time.Duration, apply func(watch.EventType, *object)) cache.ListerWatcher {
	return whole{r.listWatch(s, watches, apply)}
}

func (r *Reader) listWatch(s *stream, watches chan time.Duration, apply func(watch.EventType, *object)) *cache.ListWatch {
	request := r.requests(s)
	lasts := firstWatch
	last := "" // the version of the last event since the last list, which the reflector does not know
	noting := func(what watch.EventType, o *object) {
		last = o.ResourceVersion
		apply(what, o)
	}
	begin := follow.ListAfterOutage(func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		// A proxy in front of an API server that no longer exists would keep a watch open forever.
		ctx, cancel := context.WithTimeout(ctx, time.Duration(*options.TimeoutSeconds)*time.Second+watchGrace)
		answer, err := r.open(ctx, s, request(options).MaxRetries(0)) // otherwise a short outage does not show
		switch {
		case err == nil:
			return newEventWatch(answer, s, cancel, noting), nil
		case utilnet.IsProbableEOF(err), utilnet.IsTimeout(err):
			cancel()
			return watch.NewEmptyWatch(), nil // as client-go does
		}
		cancel()
		return nil, err
	})
	return &cache.ListWatch{
		// A reflector begins with the state that the API server has cached, so we could mistake past
		// content for a change; so lists are of the current state. They are not paged, because each
		// page would cost a round trip.
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			last = ""
			return r.list(ctx, s, metav1.ListOptions{})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if last != "" {
				options.ResourceVersion = last
			}
			options.Watch = true
			options.TimeoutSeconds = new(int64(lasts / time.Second))
			select {
			case <-watches:
			default:
			}
			watches <- lasts
			lasts = r.lag
			return begin(ctx, options)
		},
	}
}

// watchGrace is how much longer than requested a watch may last.
const watchGrace = 10 * time.Second

// whole makes a reflector list and then watch. The alternative, a watch that begins with
// all objects, takes twice as much in the API server and here: each object is in its own
// envelope.
type whole struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (whole) IsWatchListSemanticsUnSupported() bool { return true }
