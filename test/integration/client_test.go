// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/pki"
)

// kube returns a client of the cluster with all permissions.
func kube(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// configdep returns a client of the API, through the aggregator, with all permissions.
func configdep(t *testing.T) configdepv1alpha1.ConfigdepV1alpha1Interface {
	t.Helper()
	return clientset(t, cluster.RESTConfig()).ConfigdepV1alpha1()
}

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

func clientset(t *testing.T, config *rest.Config) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// place is an endpoint of the API.
type place struct {
	name string
	*rest.Config
	versioned.Interface
}

// everywhere returns every endpoint of the API: the aggregator, which picks a replica, and each replica.
func everywhere(t *testing.T) []place {
	t.Helper()
	places := []place{}
	for _, r := range server.Replicas {
		places = append(places, place{r.Name(), r.AdminConfig(), clientset(t, r.AdminConfig())})
	}
	return append(places, place{"the aggregator", cluster.RESTConfig(), clientset(t, cluster.RESTConfig())})
}

// newNamespace creates a namespace, which lives as long as the control plane.
func newNamespace(t *testing.T) string {
	t.Helper()
	made, err := kube(t).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// tokenOf returns a token of a ServiceAccount.
func tokenOf(t *testing.T, namespace, account string) string {
	t.Helper()
	token, err := kube(t).CoreV1().ServiceAccounts(namespace).
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
