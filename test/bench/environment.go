// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// environment is the environment of the benchmarks: a control plane with the server installed.
type environment struct {
	settings
	cluster *controlplane.ControlPlane
	dir     string               // files that must exist before the control plane starts
	client  kubernetes.Interface // an administrator without a rate limit
	subject subject
	install *install.Installation // nil: the subject is another program
	reader  *rest.Config          // a user with read access
	user    *requester            // the reader, with a persistent connection
	filled  shape                 // the content of the cluster

	floorKubeconfig string // for the floor of restarts
	restarts        int    // of an external subject
	helm            string // the path of hack/helm.sh, once helm is built
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
	if s.command != "" {
		if e.subject, err = newExternal(ctx, e); err != nil {
			return nil, fmt.Errorf("creating the user of the subject: %w", err)
		}
		return e, e.subject.start()
	}
	return e, e.installServer(ctx)
}

// installServer installs the server, which becomes the subject.
func (e *environment) installServer(ctx context.Context) error {
	say("building and installing the server")
	// The memory in use is read as a profile.
	options := install.Options{Binary: e.binary, Args: []string{"--profiling=true"}}
	if e.profile != "" {
		if err := os.MkdirAll(e.profile, 0o755); err != nil {
			return fmt.Errorf("creating the folder for profiles: %w", err)
		}
	}
	var err error
	if e.install, err = install.Install(ctx, e.cluster, options); err != nil {
		return err
	}
	e.subject = installed{e.server(), dialects[e.dialect]}
	if e.reader, err = newReader(ctx, e); err != nil {
		return fmt.Errorf("creating a user: %w", err)
	}
	e.user, err = newRequester(rest.CopyConfig(e.reader))
	return err
}

func (e *environment) close() error {
	if e.install != nil {
		e.install.Stop()
	} else if e.subject != nil {
		e.subject.kill()
	}
	if e.cluster == nil {
		return os.RemoveAll(e.dir)
	}
	return errors.Join(e.cluster.Stop(), os.RemoveAll(e.dir))
}

// server returns the only replica.
func (e *environment) server() *install.Replica { return e.install.Replicas[0] }

// serverKubeconfig returns the path of a kubeconfig for the server's ServiceAccount.
func (e *environment) serverKubeconfig() string {
	return filepath.Join(e.install.Dir(), "kubeconfig.yaml")
}

// readerName is the name of all objects that belong to the reader.
const readerName = "bench-reader"

// newReader creates a user that is not an administrator, because both sides skip authorization for administrators.
func newReader(ctx context.Context, e *environment) (*rest.Config, error) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: readerName},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "apps", "configdep.io"},
			Resources: []string{"configmaps", "deployments", "configdependencies"},
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
	token, err := e.newAccount(ctx, readerName)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(e.cluster.RESTConfig())
	config.BearerToken = token
	return config, nil
}

// readerAtServer returns the configuration of the reader for requests to the server itself, past the aggregator.
func (e *environment) readerAtServer() *rest.Config {
	config := e.server().RESTConfig()
	config.BearerToken = e.reader.BearerToken
	return config
}

// ownConnection returns a configuration whose clients share no connection with other clients. By default, all clients
// of one server share a connection.
func ownConnection(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext
	return config
}
