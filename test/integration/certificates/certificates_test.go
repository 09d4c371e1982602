// Package certificates tries the certificates that the server makes for itself, on replicas
// whose certificates live for half a minute: requests go on while they and their CA are
// replaced, and somebody deletes, spoils and overwrites what there is.
package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

const (
	// limit is how long anything may take on a machine that does other things meanwhile.
	limit = 3 * time.Minute
	// pause is the time between two requests of a client.
	pause = 50 * time.Millisecond

	serverName = install.Name + "." + install.Namespace + ".svc"
)

var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	webhooks    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
)

// scene is a cluster with replicas.
type scene struct {
	t       *testing.T
	cluster *controlplane.ControlPlane
	server  *install.Installation
	core    kubernetes.Interface
	dynamic dynamic.Interface

	requests, lenient atomic.Int64
	failures          chan error
}

func newScene(t *testing.T, options func(*controlplane.ControlPlane) install.Options) *scene {
	t.Helper()
	s := &scene{t: t, failures: make(chan error, 1000)}
	var err error
	s.cluster, err = controlplane.Start(t.Context(), controlplane.Options{APIServerOnly: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.server, err = install.Install(t.Context(), s.cluster, options(s.cluster))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.server.Stop()
		if err := s.server.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	if s.core, err = kubernetes.NewForConfig(s.cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if s.dynamic, err = dynamic.NewForConfig(s.cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) eventually(what string, check func(context.Context) error) {
	s.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.t.Context(), pause, limit, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		s.t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// bundles returns each caBundle that is in the cluster.
func (s *scene) bundles(ctx context.Context) (bundles [][]byte, err error) {
	service, err := s.dynamic.Resource(apiServices).Get(ctx, install.APIService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	configuration, err := s.dynamic.Resource(webhooks).Get(ctx, install.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	encoded, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
	all := []string{encoded}
	list, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, w := range list {
		encoded, _, _ := unstructured.NestedString(w.(map[string]any), "clientConfig", "caBundle")
		all = append(all, encoded)
	}
	if len(all) < 2 {
		return nil, errors.New("there are no webhooks")
	}
	for _, encoded := range all {
		bundle, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, err
		}
		bundles = append(bundles, bundle)
	}
	return bundles, nil
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

func (s *scene) secret() *corev1.Secret {
	s.t.Helper()
	secret, err := s.core.CoreV1().Secrets(install.Namespace).Get(s.t.Context(), install.CertificateSecret, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// dial connects to a replica anew, as the aggregator and the webhook client do: it trusts
// nothing but each caBundle that is in the cluster.
func (s *scene) dial(ctx context.Context, r *install.Replica) (*x509.Certificate, error) {
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
					return fmt.Errorf("by bundle %d of %d CAs: %w", i, len(certs(bundle)), err)
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

// keep has a client do something again and again, until the function that it returns is
// called. A failure ends the test, unless it is lenient at the time.
func (s *scene) keep(what string, do func(context.Context) error) (stop func()) {
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

// connected is a client of a replica that stays connected, by the CAs of the beginning.
func (s *scene) connected(r *install.Replica) (get func(context.Context) error, dialed *atomic.Int64) {
	s.t.Helper()
	dialed = &atomic.Int64{}
	config := s.directly(r) // connections of those who are unknown are closed
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

// forgive lets requests fail while something is done, and until they succeed again.
func (s *scene) forgive(do func()) {
	s.t.Helper()
	s.lenient.Add(1)
	do()
	s.eventually("requests succeed again", func(ctx context.Context) error {
		for range 20 { // by any connection
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

// get asks through the aggregator.
func (s *scene) get(ctx context.Context) error {
	client, err := versioned.NewForConfig(s.cluster.RESTConfig())
	if err != nil {
		return err
	}
	_, err = client.ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

func (s *scene) check(after string) {
	s.t.Helper()
	s.t.Logf("%s, there were %d requests", after, s.requests.Load())
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

// directly is the configuration of a client of one replica that may do everything.
func (s *scene) directly(r *install.Replica) *rest.Config {
	config, admin := r.RESTConfig(), s.cluster.RESTConfig()
	config.CertData, config.KeyData = admin.CertData, admin.KeyData
	return config
}

// metric returns the value of a metric of a replica.
func (s *scene) metric(ctx context.Context, r *install.Replica, name string) (float64, error) {
	config := s.directly(r)
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
		return 0, errors.New("there is no metric " + name)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// leader returns the replica that leads, and the other.
func (s *scene) leader() (leader, other *install.Replica) {
	s.t.Helper()
	s.eventually("one replica leads", func(ctx context.Context) error {
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
		return errors.New("none does")
	})
	return leader, other
}

// noRightIsMissing looks for what the manifests do not allow.
func (s *scene) noRightIsMissing() {
	logs, err := filepath.Glob(filepath.Join(s.server.Dir(), "*.log"))
	if err != nil || len(logs) == 0 {
		s.t.Errorf("there are no logs (%v)", err)
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

func TestRotation(t *testing.T) {
	s := newScene(t, func(*controlplane.ControlPlane) install.Options {
		return install.Options{
			Replicas: 2, Race: race, ManagedCertificates: true, Log: t.Output(),
			Args: []string{
				"--serving-certificate-lifetime=36s", "--serving-ca-lifetime=80s", "--shutdown-delay-duration=0s",
				// A third of a lifetime is left when a certificate is to be renewed, and then the leader
				// may be killed: until another leads and a new CA has been trusted for a twentieth of
				// its lifetime, that must do.
				"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=400ms",
			},
		}
	})
	first := certs(s.secret().Data["ca.crt"])
	var pids []int
	var mu sync.Mutex
	leaves := map[string]map[string]bool{} // by replica
	defer s.keep("through the aggregator", s.get)()
	var stops []func()
	var dialed []*atomic.Int64
	for _, r := range s.server.Replicas {
		pids = append(pids, r.PID())
		leaves[r.Name()] = map[string]bool{}
		defer s.keep("by a new connection to "+r.Name(), func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err == nil {
				mu.Lock()
				leaves[r.Name()][leaf.SerialNumber.String()] = true
				mu.Unlock()
			}
			return err
		})()
		get, n := s.connected(r)
		dialed, stops = append(dialed, n), append(stops, s.keep("by an old connection to "+r.Name(), get))
	}

	// Rotation.
	most := 0
	s.eventually("the first CA is not trusted any more, and its successor serves", func(ctx context.Context) error {
		bundles, err := s.bundles(ctx)
		if err != nil {
			return err
		}
		now := certs(bundles[0])
		most = max(most, len(now))
		mu.Lock()
		defer mu.Unlock()
		for name, seen := range leaves {
			if len(seen) < 3 {
				return fmt.Errorf("%s has served by %d certificates", name, len(seen))
			}
		}
		for _, ca := range now {
			if ca.Equal(first[0]) {
				return errors.New("it is trusted")
			}
		}
		return nil
	})
	s.check("after the rotation")
	if len(first) != 1 || most != 2 {
		t.Errorf("%d CA in the beginning, at most %d", len(first), most)
	}
	for i, r := range s.server.Replicas {
		stops[i]()
		if dialed[i].Load() != 1 {
			t.Errorf("the old connection to %s was made %d times", r.Name(), dialed[i].Load())
		}
		if r.PID() != pids[i] {
			t.Errorf("%s was started again", r.Name())
		}
		s.eventually("the metric tells when the certificate expires", func(ctx context.Context) error {
			leaf, err := s.dial(ctx, r)
			if err != nil {
				return err
			}
			expiry, err := s.metric(ctx, r, "configdep_serving_certificate_expiry_timestamp_seconds")
			if err == nil && int64(expiry) != leaf.NotAfter.Unix() {
				err = fmt.Errorf("it is %f, the certificate expires at %d", expiry, leaf.NotAfter.Unix())
			}
			return err
		})
	}

	s.deleted()
	s.check("after the Secret was deleted")
	s.spoilt()
	s.check("after the Secret was spoilt")
	s.overwritten()
	s.check("after caBundle was overwritten")
	s.leaderKilled()
	s.check("after the leader was killed")
	s.noRightIsMissing()
	s.withoutARight()
}

// deleted: the Secret comes back as it was.
func (s *scene) deleted() {
	s.t.Helper()
	before := s.secret()
	if err := s.core.CoreV1().Secrets(install.Namespace).Delete(s.t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the Secret is back", func(ctx context.Context) error {
		after, err := s.core.CoreV1().Secrets(install.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err == nil && after.UID == before.UID {
			err = errors.New("it is the same")
		}
		if err == nil && !certs(after.Data["ca.crt"])[0].Equal(certs(before.Data["ca.crt"])[0]) {
			s.t.Error("it has another CA")
		}
		return err
	})
}

// spoilt: the Secret is mended from what is served.
func (s *scene) spoilt() {
	s.t.Helper()
	before := s.secret()
	spoilt := before.DeepCopy()
	spoilt.Data["tls.crt"], spoilt.Data["ca.crt"], spoilt.Annotations = []byte("x"), []byte("y"), nil
	delete(spoilt.Data, "ca.key")
	spoilt.ResourceVersion = ""
	if _, err := s.core.CoreV1().Secrets(install.Namespace).Update(s.t.Context(), spoilt, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the Secret is mended", func(context.Context) error {
		after := s.secret()
		if ca := certs(after.Data["ca.crt"]); len(ca) == 0 || !ca[0].Equal(certs(before.Data["ca.crt"])[0]) || len(after.Data["ca.key"]) == 0 {
			return fmt.Errorf("there are %d CAs", len(ca))
		}
		return nil
	})
}

// overwritten: caBundle is put right.
func (s *scene) overwritten() {
	s.t.Helper()
	stranger, err := pki.NewAuthority("stranger")
	if err != nil {
		s.t.Fatal(err)
	}
	list, err := s.dynamic.Resource(webhooks).Get(s.t.Context(), install.Name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	n, _, _ := unstructured.NestedSlice(list.Object, "webhooks")
	var patch []map[string]any
	for i := range n {
		patch = append(patch, map[string]any{"op": "replace", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": stranger.BundlePEM()})
	}
	ofWebhooks, err := json.Marshal(patch)
	if err != nil {
		s.t.Fatal(err)
	}
	ofService, err := json.Marshal([]map[string]any{{"op": "remove", "path": "/spec/caBundle"}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.forgive(func() {
		if _, err := s.dynamic.Resource(apiServices).Patch(s.t.Context(), install.APIService, types.JSONPatchType, ofService, metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.dynamic.Resource(webhooks).Patch(s.t.Context(), install.Name, types.JSONPatchType, ofWebhooks, metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
		s.eventually("the bundles are put right", func(ctx context.Context) error {
			bundles, err := s.bundles(ctx)
			if err != nil {
				return err
			}
			for i, b := range bundles {
				if len(b) == 0 || bytes.Equal(b, stranger.BundlePEM()) {
					return fmt.Errorf("bundle %d is not", i)
				}
			}
			return nil
		})
	})
}

// leaderKilled: another goes on with the rotation that it finds. Requests to the one that is
// killed fail; all others are answered.
func (s *scene) leaderKilled() {
	s.t.Helper()
	leader, other := s.leader()
	s.forgive(func() {
		// Whoever deletes the key of the CA gets another CA.
		before := certs(s.secret().Data["ca.crt"])
		if _, err := s.core.CoreV1().Secrets(install.Namespace).Patch(s.t.Context(), install.CertificateSecret, types.JSONPatchType,
			[]byte(`[{"op": "remove", "path": "/data/ca.key"}]`), metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
		var successor *x509.Certificate
		s.eventually("there is another CA", func(context.Context) error {
			now := certs(s.secret().Data["ca.crt"])
			if successor = now[len(now)-1]; successor.Equal(before[len(before)-1]) {
				return errors.New("there is not")
			}
			return nil
		})
		leader.Kill()
		s.eventually("the other serves by it", func(ctx context.Context) error {
			leaf, err := s.dial(ctx, other)
			if err != nil {
				s.t.Errorf("by a new connection to the other: %v", err)
				return err
			}
			return leaf.CheckSignatureFrom(successor)
		})
		if err := leader.Start(); err != nil {
			s.t.Fatal(err)
		}
		if err := leader.AwaitReady(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	})
}

// withoutARight: a replica that cannot have a certificate serves nobody, tries on, and ends
// when it is told to.
func (s *scene) withoutARight() {
	s.t.Helper()
	r, err := s.server.StartExtra("without-a-right", install.ReplicaOptions{Args: []string{"--serving-certificate-secret=of-somebody-else"}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("it has tried twice", func(context.Context) error {
		log, err := os.ReadFile(r.Log())
		if err != nil {
			return err
		}
		if strings.Count(string(log), "Reading the serving certificate, will try again") < 2 {
			return errors.New("it has not")
		}
		return nil
	})
	if err := r.Terminate(); err != nil {
		s.t.Errorf("it did not end in order: %v", err)
	}
	if log, err := os.ReadFile(r.Log()); err != nil || strings.Contains(string(log), "Serving securely") {
		s.t.Errorf("it has served (%v)", err)
	}
}

// With a certificate from files, caBundle follows a file too.
func TestBundleFromAFile(t *testing.T) {
	var file string
	s := newScene(t, func(c *controlplane.ControlPlane) install.Options {
		file = filepath.Join(c.Dir(), "configdep", "ca.crt")
		return install.Options{Race: race, Log: t.Output(), Args: []string{"--ca-bundle-file=" + file, "--shutdown-delay-duration=0s"}}
	})
	ours, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	everywhere := func(want []byte) {
		t.Helper()
		s.eventually("the bundle is in place", func(ctx context.Context) error {
			bundles, err := s.bundles(ctx)
			for i, b := range bundles {
				if !bytes.Equal(b, want) {
					err = fmt.Errorf("bundle %d has %d CAs", i, len(certs(b)))
				}
			}
			return err
		})
	}
	everywhere(ours)
	s.overwritten()
	everywhere(ours)
	both := append(bytes.Clone(ours), other.BundlePEM()...)
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
	everywhere(both)
	if expiry, err := s.metric(t.Context(), s.server.Replicas[0], "configdep_serving_certificate_expiry_timestamp_seconds"); err != nil || expiry < float64(time.Now().Unix()) {
		t.Errorf("the certificate expires at %f (%v)", expiry, err)
	}
}
