// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/controlplane"
)

// AgentAccount creates a ServiceAccount for config agents in a namespace, with a Role of its own, waits until the API
// server knows its rights, and returns the flag with which an agent uses it that runs in no pod: that of a proxy with the token of the
// account, which serves until the context ends.
func AgentAccount(ctx context.Context, cluster *controlplane.ControlPlane, namespace string, rules ...rbacv1.PolicyRule) (flags []string, err error) {
	config := cluster.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	metadata, create := metav1.ObjectMeta{Namespace: namespace, Name: "agent"}, metav1.CreateOptions{}
	if _, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metadata}, create); err != nil {
		return nil, err
	}
	if _, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metadata, Rules: rules}, create); err != nil {
		return nil, err
	}
	if _, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metadata,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: metadata.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: metadata.Name}},
	}, create); err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if err := awaitRights(ctx, client, metadata, rule); err != nil {
			return nil, err
		}
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, metadata.Name, &authenticationv1.TokenRequest{}, create)
	if err != nil {
		return nil, err
	}
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = token.Status.Token
	transport, err := rest.TransportFor(as)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	proxy := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }, Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}}
	context.AfterFunc(ctx, func() { _ = proxy.Close() })
	go func() { _ = proxy.Serve(l) }()
	return []string{"--api-server=http://" + l.Addr().String()}, nil
}

// awaitRights waits until a ServiceAccount may do what a rule says. Before that, the API server would refuse it.
func awaitRights(ctx context.Context, client kubernetes.Interface, account metav1.ObjectMeta, rule rbacv1.PolicyRule) error {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""} // all of them
	}
	for _, verb := range rule.Verbs {
		for _, name := range names {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + account.Namespace + ":" + account.Name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: account.Namespace, Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0], Name: name},
			}}
			err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
				answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				return err == nil && answer.Status.Allowed, err
			})
			if err != nil {
				return fmt.Errorf("waiting until the agent may %s %s %s: %w", verb, rule.Resources[0], name, err)
			}
		}
	}
	return nil
}
