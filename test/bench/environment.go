// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// environment is the environment of the benchmarks: a control plane with the server installed.
type environment struct {
	settings
	cluster *controlplane.ControlPlane
	dir     string               // files that must exist before the control plane starts
	client  kubernetes.Interface // an administrator without a rate limit
	install *install.Installation
	filled  shape // the content of the cluster

	floorKubeconfig string // for the floor of restarts
}

func newEnvironment(ctx context.Context, s settings) (_ *environment, err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("creating a folder: %w", err)
	}
	e := &environment{settings: s, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	audit, err := auditArgs(dir)
	if err != nil {
		return nil, err
	}
	say("starting a control plane (the first start builds it, which takes minutes)")
	// No controller may act on the objects: pods and their ReplicaSets would use the processors that both
	// sides need.
	if e.cluster, err = controlplane.Start(ctx, controlplane.Options{APIServerOnly: true, APIServerArgs: audit, Log: os.Stderr}); err != nil {
		return nil, err
	}
	config := e.cluster.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if e.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if e.floorKubeconfig, err = e.administrator(ctx, floorName); err != nil {
		return nil, fmt.Errorf("creating the user of the floor: %w", err)
	}
	say("building and installing the server")
	if e.install, err = install.Install(ctx, e.cluster, install.Options{Binary: e.binary, Args: e.args}); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *environment) close() error {
	if e.install != nil {
		e.install.Stop()
	}
	if e.cluster == nil {
		return os.RemoveAll(e.dir)
	}
	return errors.Join(e.cluster.Stop(), os.RemoveAll(e.dir))
}

// server returns the only replica.
func (e *environment) server() *install.Replica { return e.install.Replicas[0] }

// administrator creates a ServiceAccount with all permissions, and returns the path of its kubeconfig. Unlike for a
// member of the administrators' group, its requests are authorized as those of any other user.
func (e *environment) administrator(ctx context.Context, name string) (kubeconfig string, err error) {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	}
	if _, err := e.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	accounts := e.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	day := int64(24 * time.Hour / time.Second)
	granted, err := accounts.CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path := filepath.Join(e.cluster.Dir(), name+".yaml")
	return path, e.cluster.WriteKubeconfig(path, granted.Status.Token)
}

func accountOf(name string) string {
	return "system:serviceaccount:" + metav1.NamespaceDefault + ":" + name
}
