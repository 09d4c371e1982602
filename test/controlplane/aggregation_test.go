// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/configdep/configdep/test/pki"
)

// How kube-apiserver finds an aggregated API server outside the cluster depends on one of its flags.
const (
	externalName = `
apiVersion: v1
kind: Service
metadata: {name: who, namespace: default}
spec: {type: ExternalName, externalName: localhost}
`
	endpoint = `
apiVersion: v1
kind: Service
metadata: {name: who, namespace: default}
spec: {ports: [{port: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: who-1, namespace: default, labels: {kubernetes.io/service-name: who}}
addressType: IPv4
ports: [{port: %[2]d}]
endpoints: [{addresses: [%[1]s]}]
`
	apiService = `
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.who.test}
spec:
  group: who.test
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  service: {name: who, namespace: default, port: %d}
  caBundle: %s
`
)

// The aggregator reaches an aggregated API server outside the cluster, which can verify the user. Two control planes
// run at the same time.
func TestAggregation(t *testing.T) {
	t.Run("by the name of the Service", func(t *testing.T) {
		t.Parallel()
		c := start(t, Options{APIServerOnly: true})
		who := serveWhoAmI(t, c, net.IPv4(127, 0, 0, 1))
		apply(t, c, externalName+fmt.Sprintf(apiService, who.port, who.caBundle))
		checkWhoAmI(t, c)
	})
	t.Run("by the endpoints of the Service", func(t *testing.T) {
		t.Parallel()
		ip, err := EndpointIP()
		if err != nil {
			t.Skip(err)
		}
		c := start(t, Options{APIServerOnly: true, APIServerArgs: []string{"--enable-aggregator-routing=true"}})
		who := serveWhoAmI(t, c, ip)
		apply(t, c, fmt.Sprintf(endpoint, ip, who.port)+fmt.Sprintf(apiService, who.port, who.caBundle))
		checkWhoAmI(t, c)
	})
}

type whoAmI struct {
	port     int
	caBundle string
}

// serveWhoAmI starts a server that answers with the user of the request, and accepts only the aggregator as a client.
func serveWhoAmI(t *testing.T, c *ControlPlane, ip net.IP) whoAmI {
	t.Helper()
	authority, err := pki.NewAuthority("who")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := authority.ServingCert([]string{"who.default.svc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := serving.TLS()
	if err != nil {
		t.Fatal(err)
	}
	authentication, err := newClient(t, c).CoreV1().ConfigMaps(metav1.NamespaceSystem).
		Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	aggregators := x509.NewCertPool()
	aggregators.AppendCertsFromPEM([]byte(authentication.Data["requestheader-client-ca-file"]))

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/who.test/v1" { // discovery, by which the aggregator checks availability
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"who.test/v1","resources":[]}`)
			return
		}
		_, _ = fmt.Fprint(w, r.Header.Get("X-Remote-User"), " ", r.Header.Values("X-Remote-Group"))
	}))
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if server.Listener, err = net.Listen("tcp", net.JoinHostPort(ip.String(), "0")); err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    aggregators,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return whoAmI{
		port:     server.Listener.Addr().(*net.TCPAddr).Port,
		caBundle: base64.StdEncoding.EncodeToString(authority.BundlePEM()),
	}
}

func apply(t *testing.T, c *ControlPlane, manifests string) {
	t.Helper()
	cmd := c.Command(t.Context(), c.KubectlPath(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func checkWhoAmI(t *testing.T, c *ControlPlane) {
	t.Helper()
	kubectl(t, c, "wait", "apiservice/v1.who.test", "--for=condition=Available", limit)

	var got string
	client := newClient(t, c).Discovery().RESTClient()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		// A controller sets Available; the handler may get to know the server later.
		body, err := client.Get().AbsPath("/apis/who.test/v1/me").Do(ctx).Raw()
		got = string(body)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if want := "admin [system:masters system:authenticated]"; got != want {
		t.Errorf("user of the request = %s, want %s", got, want)
	}
}
