// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/tracing"
)

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// asRequest gives a request to /watch the information that the API server has of watches, and any
// other that of a get.
func asRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get"}
		if r.URL.Path == "/watch" {
			info.Verb = "watch"
		}
		next.ServeHTTP(w, r.WithContext(genericapirequest.WithRequestInfo(r.Context(), info)))
	})
}

// serve serves as the generic API server does, with HTTP/2, or with HTTP/1.1 and no encryption. It
// returns where, and a client as kube-apiserver is one.
func serve(t *testing.T, h http.Handler, http2 bool) (address string, client *http.Client) {
	t.Helper()
	if !http2 {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String(), s.Client()
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := dynamiccertificates.NewStaticCertKeyContent("test", cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	info := &genericapiserver.SecureServingInfo{Listener: listener, Cert: pair, HTTP2MaxStreamsPerConnection: 1000}
	stopped, _, err := info.Serve(h, 0, stop)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(stop); <-stopped })
	client = http2Client()
	t.Cleanup(client.CloseIdleConnections)
	return listener.Addr().String(), client
}

func http2Client() *http.Client {
	return &http.Client{Transport: utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // of this test
	})}
}

const watchPath = "/apis/configdep.io/v1alpha1/configdependencies?watch=true"

// inChain puts a handler into the chain of the generic API server, which wraps what answers are written
// to, and lets everything pass.
func inChain(api http.Handler) http.Handler {
	c := genericapiserver.NewConfig(codecs)
	c.Authentication.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}, true, nil
	})
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	c.FeatureGate, c.TracerProvider = utilfeature.DefaultFeatureGate, tracing.NewNoopTracerProvider()
	c.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(c)
	return genericapiserver.DefaultBuildHandlerChain(api, c)
}

// A kube-apiserver has one connection for all watches. When they begin again, as after a rolling update,
// they spread over the replicas to which the Service leads. Those that have begun go on, and no request
// fails.
func TestSpread_WatchesOverReplicas(t *testing.T) {
	const most, watches = 5, 40
	more := make(chan struct{})
	var mu sync.Mutex
	begun := [2]int{}
	connections := map[string]int{}
	var addresses [2]string
	var spreads [2]*spread
	for i := range 2 {
		spreads[i] = &spread{most: most}
		addresses[i], _ = serve(t, asRequest(spreads[i].handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/watch" {
				return
			}
			mu.Lock()
			begun[i]++
			connections[r.RemoteAddr]++
			mu.Unlock()
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			select {
			case <-more:
				fmt.Fprintln(w, "event")
			case <-r.Context().Done():
			}
		}))), true)
	}
	var dialed atomic.Int64
	client := http2Client()
	defer client.CloseIdleConnections()
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { // as a Service does
		var d net.Dialer
		return d.DialContext(ctx, network, addresses[(dialed.Add(1)-1)%2])
	}
	var bodies []io.ReadCloser
	for range watches {
		for _, path := range []string{"/watch", "/get"} { // gets do not count
			answer, err := client.Get("https://service" + path)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if path == "/get" {
				answer.Body.Close()
				continue
			}
			bodies = append(bodies, answer.Body)
		}
	}
	mu.Lock()
	if diff := cmp.Diff([2]int{watches / 2, watches / 2}, begun); diff != "" || len(connections) != watches/most {
		t.Errorf("%d connections, watches by replica (-want +got):\n%s", len(connections), diff)
	}
	mu.Unlock()
	close(more)
	for i, body := range bodies {
		if line, err := bufio.NewReader(body).ReadString('\n'); err != nil || line != "event\n" {
			t.Errorf("watch %d gets %q, %v", i, line, err)
		}
		body.Close()
	}
}

// Nothing is kept of connections on which there are no watches, and one that has been used long enough
// is said so once.
func TestSpread_ForgetsConnections(t *testing.T) {
	s := &spread{most: 2}
	var got []bool
	for range 4 {
		got = append(got, s.begin("a"))
	}
	for range 4 {
		s.end("a")
	}
	got = append(got, s.begin("a"))
	s.end("a")
	if diff := cmp.Diff([]bool{false, true, false, false, false}, got); diff != "" || len(s.connections) != 0 {
		t.Errorf("%d connections are kept, told to be the last (-want +got):\n%s", len(s.connections), diff)
	}
}

// A client that reads nothing loses its watch, and what the server holds for it is released. Others on
// the same connection go on.
func TestEndStalled_WhenNothingIsRead(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/2": true, "HTTP/1.1": false} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			next := make(chan struct{})
			address, client := serve(t, inChain(endStalled(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				if r.URL.Query().Has("idle") {
					<-next
					fmt.Fprintln(w, "event")
					return
				}
				var err error
				for event := make([]byte, 64<<10); err == nil; {
					_, err = w.Write(event)
					w.(http.Flusher).Flush()
				}
				ended <- err
			}), 20*time.Millisecond)), http2)
			url := "http://" + address + watchPath
			if http2 {
				url = "https://" + address + watchPath
			}
			idle, err := client.Get(url + "&idle")
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Body.Close()
			stalled, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer stalled.Body.Close()
			select {
			case err := <-ended:
				t.Logf("it ends with: %v", err)
			case <-time.After(time.Minute):
				t.Fatal("the watch goes on although nothing is read")
			}
			close(next)
			if line, err := bufio.NewReader(idle.Body).ReadString('\n'); err != nil || line != "event\n" {
				t.Errorf("one to which nothing had to be sent gets %q, %v", line, err)
			}
		})
	}
}

// The same for a watch over a WebSocket, whose connection is taken from the HTTP server. One that is read goes on.
func TestEndStalled_WebSocket(t *testing.T) {
	ended := make(chan error, 1)
	next := make(chan struct{})
	address, _ := serve(t, inChain(endStalled(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		send := func(event []byte) error { // as golang.org/x/net/websocket does
			if _, err := buffered.Write(event); err != nil {
				return err
			}
			return buffered.Flush()
		}
		err = send([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"))
		if r.URL.Query().Has("idle") {
			<-next
			ended <- send([]byte("event\n"))
			return
		}
		for event := make([]byte, 64<<10); err == nil; {
			err = send(event)
		}
		ended <- err
	}), 20*time.Millisecond)), false)
	dial := func(path string) net.Conn {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	idle := dial(watchPath + "&idle")
	dial(watchPath)
	select {
	case err := <-ended:
		t.Logf("it ends with: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the watch goes on although nothing is read")
	}
	close(next)
	if all, err := io.ReadAll(idle); err != nil || !strings.HasSuffix(string(all), "\r\n\r\nevent\n") {
		t.Errorf("one to which nothing had to be sent gets %q, %v", all, err)
	}
}

// A watch counts as stalled only if the same write goes on, not if there is none or they are many.
func TestEndStalled_NotWhatGetsOn(t *testing.T) {
	w := &watchWriter{ResponseWriter: httptest.NewRecorder()}
	check := func(why string, want bool) {
		t.Helper()
		if got := w.stalled(); got != want {
			t.Errorf("%s: stalled %v", why, got)
		}
	}
	check("before anything is written", false)
	check("still", false)
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	check("after a write", false)
	check("for long", false)
	for range 3 {
		w.writes.Add(1) // one begins
		check("during a write that has just begun", false)
		w.writes.Add(1) // and ends
		w.writes.Add(1)
		check("during the next one", false)
		w.writes.Add(1)
	}
	w.writes.Add(1)
	check("during a write", false)
	check("that goes on", true)
}

// Requests other than watches are passed on as they are.
func TestEndStalled_LeavesOtherRequestsAlone(t *testing.T) {
	h := asRequest(endStalled(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, wrapped := w.(*httptest.ResponseRecorder); !wrapped {
			t.Errorf("a get is answered by a %T", w)
		}
	}), time.Minute))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/get", nil))
}
