// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/pki"
)

// as returns a client of the API that impersonates a user.
func as(t *testing.T, user string, groups ...string) configdepv1alpha1.ConfigdepV1alpha1Interface {
	t.Helper()
	return clientset(t, impersonate(user, groups...)).ConfigdepV1alpha1()
}

func impersonate(user string, groups ...string) *rest.Config {
	config := cluster.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// serverAccount is the user that the server is.
const serverAccount = "system:serviceaccount:" + install.Namespace + ":" + install.Name

func clientset(t *testing.T, config *rest.Config) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// endpoint is where the API is served: by the aggregator, which picks a replica, or by a replica.
type endpoint struct {
	name string
	*rest.Config
	versioned.Interface
}

func endpointOf(r *install.Replica) endpoint {
	return endpoint{r.Name(), r.AdminConfig(), versioned.NewForConfigOrDie(r.AdminConfig())}
}

// replica starts another process of the server, which only serves, waits until it is ready, and kills it when the test ends.
func replica(t *testing.T, name string, o install.ReplicaOptions) *install.Replica {
	t.Helper()
	r := startReplica(t, name, o)
	if err := r.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// startReplica is replica for a server that may never be ready.
func startReplica(t *testing.T, name string, o install.ReplicaOptions) *install.Replica {
	t.Helper()
	o.Args = append([]string{"--shutdown-delay-duration=0s"}, o.Args...)
	r, err := server.StartExtra(name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

// restart starts a replica again that has ended, and waits until it is ready.
func restart(t *testing.T, r *install.Replica) {
	t.Helper()
	if err := errors.Join(r.Start(), r.AwaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// newNamespace creates a namespace, which lives as long as the control plane.
func newNamespace(t *testing.T) string {
	t.Helper()
	return create(t, kube.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}).Name
}

// tokenOf returns a token of a ServiceAccount.
func tokenOf(t *testing.T, namespace, account string) string {
	t.Helper()
	token, err := kube.CoreV1().ServiceAccounts(namespace).
		CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// strangersCertificate returns a client certificate with the name of the aggregator's, signed by a CA that is not
// trusted.
func strangersCertificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	authority, err := pki.NewAuthority("controlplane-front-proxy")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.ClientCert("front-proxy-client", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	return pair.Cert, pair.Key
}
