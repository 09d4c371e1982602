// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	authenticatorunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/ingest"
)

// standalone is a server that belongs to no installation: it shows the cluster to the user who starts it, with that user's
// rights, and writes nothing to the cluster.
type standalone struct {
	client     kubernetes.Interface
	scope      ingest.Scope
	loopback   *rest.Config
	kubeconfig string // the file to write
}

// onlyLoopback makes the server accept nothing but the token of its own loopback client: to ask the cluster about the tokens
// and rights of others, the user would need additional rights.
func onlyLoopback(c *genericapiserver.Config) {
	c.Authentication.Authenticator = authenticatorunion.New()
	c.Authorization.Authorizer = authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
}

// begin checks the rights of the user, and writes the kubeconfig. The caller calls end when the server has ended.
func (s *standalone) begin(ctx context.Context) (end func(), err error) {
	if err := s.checkRights(ctx); err != nil {
		return nil, err
	}
	if err := s.writeKubeconfig(); err != nil {
		return nil, fmt.Errorf("--write-kubeconfig: %w", err)
	}
	return func() { _ = os.Remove(s.kubeconfig) }, nil
}

// checkRights returns an error that names all that the user may not list and watch.
func (s *standalone) checkRights(ctx context.Context) error {
	var missing []string
	for _, need := range s.scope.Required() {
		what := schema.GroupResource{Group: need.Group, Resource: need.Resource}.String()
		if need.Namespace != "" {
			what += " in namespace " + need.Namespace
		}
		if slices.Contains(missing, what) {
			continue
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &need}}
		var answer *authorizationv1.SelfSubjectAccessReview
		// Every user may ask, so an error is mostly one of the connection, or of a proxy in between.
		often := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 3, Steps: 5}
		again := func(err error) bool {
			return ctx.Err() == nil && !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err)
		}
		err := retry.OnError(often, again, func() (err error) {
			answer, err = s.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("asking what the user of --kubeconfig may read: %w", err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, what)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the user of --kubeconfig may not list and watch %s; read less with --read-secrets=false, --read-configmaps=false, "+
			"--ignored-workload-types or --namespaces, or use another user", strings.Join(missing, ", "))
	}
	return nil
}

// writeKubeconfig writes a file with which kubectl reaches the server. It overwrites none: it could be the user's own.
func (s *standalone) writeKubeconfig() error {
	const name = "configdep"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: s.loopback.Host, TLSServerName: s.loopback.ServerName, CertificateAuthorityData: s.loopback.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: s.loopback.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.kubeconfig, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
