package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// environment is what benchmarks work with: one control plane with the server installed.
type environment struct {
	settings
	cluster *controlplane.ControlPlane
	install *install.Installation
	client  kubernetes.Interface // may do everything, as fast as it can
	user    *requester           // a user who may read
	filled  shape                // what is in the cluster
}

func newEnvironment(ctx context.Context, s settings) (_ *environment, err error) {
	say("starting a control plane (the first time it is built, which takes minutes)")
	// Nothing may act on the objects: pods and their ReplicaSets would only take from
	// the processors that both sides need.
	cluster, err := controlplane.Start(ctx, controlplane.Options{APIServerOnly: true, Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	e := &environment{settings: s, cluster: cluster}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	config := cluster.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if e.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	say("building and installing the server")
	options := install.Options{Binary: s.binary}
	if s.profile != "" {
		options.Args = []string{"--profiling=true"}
		if err := os.MkdirAll(s.profile, 0o755); err != nil {
			return nil, fmt.Errorf("creating the folder for profiles: %w", err)
		}
	}
	if e.install, err = install.Install(ctx, cluster, options); err != nil {
		return nil, err
	}
	if e.user, err = newUser(ctx, e); err != nil {
		return nil, fmt.Errorf("creating a user: %w", err)
	}
	return e, nil
}

func (e *environment) close() error {
	if e.install != nil {
		e.install.Stop()
	}
	return e.cluster.Stop()
}

// server is the only replica.
func (e *environment) server() *install.Replica { return e.install.Replicas[0] }

// serverKubeconfig is that of the server's ServiceAccount.
func (e *environment) serverKubeconfig() string {
	return filepath.Join(e.install.Dir(), "kubeconfig.yaml")
}

// readerName is the name of everything that belongs to the user.
const readerName = "bench-reader"

// newUser makes somebody who is no administrator: those skip authorization, on either
// side, which no user does.
func newUser(ctx context.Context, e *environment) (*requester, error) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: readerName},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"apps", "configdep.io"},
			Resources: []string{"deployments", "configdependencies"},
			Verbs:     []string{"get", "list", "watch"},
		}},
	}
	if _, err := e.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: readerName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: readerName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: readerName}},
	}
	if _, err := e.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	accounts := e.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: readerName}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, readerName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(e.cluster.RESTConfig())
	config.BearerToken = token.Status.Token
	return newRequester(config)
}
