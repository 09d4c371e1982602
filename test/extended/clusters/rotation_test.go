// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// rotation is a cluster with replicas.
type rotation struct {
	t       *testing.T
	cluster *controlplane.ControlPlane
	server  *install.Installation
	core    kubernetes.Interface
	dynamic dynamic.Interface

	requests, lenient atomic.Int64
	failures          chan error
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	s := &rotation{t: t, failures: make(chan error, 1000)}
	s.cluster = start(t, controlplane.Options{APIServerOnly: true})
	s.server = installed(t, s.cluster, install.Options{
		Race: install.RaceDetector, ManagedCertificates: true,
		Args: []string{
			"--serving-certificate-lifetime=" + lifetime.String(), "--serving-ca-lifetime=" + (lifetime * 3).String(),
			// A certificate is renewed when a third of its lifetime is left, and then the leader may be
			// killed. The rest of the lifetime must suffice until another replica leads and a new CA has been
			// trusted for a tenth of it, even on a busy machine.
			"--leader-elect-lease-duration=3s",
		},
	})
	var err error
	if s.core, err = kubernetes.NewForConfig(s.cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if s.dynamic, err = dynamic.NewForConfig(s.cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// bundles returns caBundle of the APIService, and the bundle of the ConfigMap for other clients.
func (s *rotation) bundles(ctx context.Context) ([][]byte, error) {
	service, err := s.dynamic.Resource(apiServices).Get(ctx, install.APIService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	encoded, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	published, err := s.core.CoreV1().ConfigMaps(install.Namespace).Get(ctx, caConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return [][]byte{bundle, []byte(published.Data["ca.crt"])}, nil
}

func certs(data []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return all
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
}

func (s *rotation) secret() *corev1.Secret {
	s.t.Helper()
	secret, err := s.core.CoreV1().Secrets(install.Namespace).Get(s.t.Context(), install.CertificateSecret, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// dial opens a new connection to a replica, as the aggregator and other clients do: with each bundle in the cluster.
func (s *rotation) dial(ctx context.Context, r *install.Replica) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	bundles, err := s.bundles(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: &tls.Config{
		ServerName:         serverName,
		InsecureSkipVerify: true, //nolint:gosec // it is verified below, by each bundle
		VerifyConnection: func(state tls.ConnectionState) error {
			for i, bundle := range bundles {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(bundle)
				if _, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: serverName, Roots: roots}); err != nil {
					return fmt.Errorf("with bundle %d of %d CAs: %w", i, len(certs(bundle)), err)
				}
			}
			return nil
		},
	}}).DialContext(ctx, "tcp", r.Address())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	state := conn.(*tls.Conn).ConnectionState()
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
		return nil, fmt.Errorf("answered %q, %w", answer, err)
	}
	return state.PeerCertificates[0], nil
}

// keep runs do repeatedly, until the returned function is called. A failure fails the test, unless failures are
// forgiven at the time.
func (s *rotation) keep(what string, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			before := s.lenient.Load()
			err := do(ctx)
			if ctx.Err() != nil {
				return
			}
			s.requests.Add(1)
			if err != nil && before == 0 && s.lenient.Load() == 0 {
				s.failures <- fmt.Errorf("%s, at %s: %w", what, time.Now().Format("15:04:05.000"), err)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// connected returns a client with a lasting connection to a replica, which trusts the first CAs.
func (s *rotation) connected(r *install.Replica) (get func(context.Context) error, dialed *atomic.Int64) {
	s.t.Helper()
	dialed = &atomic.Int64{}
	config := r.AdminConfig() // connections of unauthenticated clients are closed
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/livez", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err = io.Copy(io.Discard, response.Body); err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return err
	}, dialed
}

// forgive allows requests to fail during do, and until they succeed again.
func (s *rotation) forgive(do func()) {
	s.t.Helper()
	s.lenient.Add(1)
	do()
	await.Until(s.t, "requests succeed again", func(ctx context.Context) error {
		for range 20 { // on any connection
			if err := s.get(ctx); err != nil {
				return err
			}
		}
		for _, r := range s.server.Replicas {
			if _, err := s.dial(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	s.lenient.Add(-1)
}

// get sends a request through the aggregator.
func (s *rotation) get(ctx context.Context) error {
	client, err := versioned.NewForConfig(s.cluster.RESTConfig())
	if err != nil {
		return err
	}
	_, err = client.ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

func (s *rotation) check(after string) {
	s.t.Helper()
	s.t.Logf("%s: %d requests so far", after, s.requests.Load())
	for {
		select {
		case err := <-s.failures:
			s.t.Error(err)
		default:
			if s.t.Failed() {
				s.t.FailNow()
			}
			return
		}
	}
}

// metric returns the value of a metric of a replica.
func (s *rotation) metric(ctx context.Context, r *install.Replica, name string) (float64, error) {
	config := r.AdminConfig()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(content)
	if found == nil {
		return 0, errors.New("no metric " + name)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// leader returns the leader and the other replica.
func (s *rotation) leader() (leader, other *install.Replica) {
	s.t.Helper()
	await.Until(s.t, "one replica leads", func(ctx context.Context) error {
		for i, r := range s.server.Replicas {
			leads, err := s.metric(ctx, r, "configdep_leader")
			if err != nil {
				return err
			}
			if leads == 1 {
				leader, other = r, s.server.Replicas[1-i]
				return nil
			}
		}
		return errors.New("no replica leads")
	})
	return leader, other
}

// noRightIsMissing checks that the logs contain no request that the manifests do not allow.
func (s *rotation) noRightIsMissing() {
	logs, err := filepath.Glob(filepath.Join(s.server.Dir(), "*.log"))
	if err != nil || len(logs) == 0 {
		s.t.Errorf("no logs (%v)", err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			s.t.Error(err)
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, "forbidden") {
				s.t.Errorf("%s: %s", filepath.Base(log), line)
			}
		}
	}
}
