// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// bind binds a ClusterRole to a user in a namespace, and waits until the permissions that the test needs are
// effective. Servers cache a denial for ten seconds, so the binding must come first.
func bind(t *testing.T, user rbacv1.Subject, namespace, role string, needs ...authorizationv1.ResourceAttributes) {
	t.Helper()
	create(t, kube.RbacV1().RoleBindings(namespace).Create, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{user},
	})
	for _, need := range needs {
		awaitRight(t, user, namespace, need)
	}
}

func awaitRight(t *testing.T, user rbacv1.Subject, namespace string, need authorizationv1.ResourceAttributes) {
	t.Helper()
	need.Namespace, need.Group, need.Version = namespace, "configdep.io", "v1alpha1"
	name := user.Name
	if user.Kind == rbacv1.ServiceAccountKind {
		name = "system:serviceaccount:" + user.Namespace + ":" + user.Name
	}
	await.Until(t, fmt.Sprintf("%s may %s", name, need.Verb), func(ctx context.Context) error {
		review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &need}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("not allowed: %s", review.Status.Reason)
		}
		return err
	})
}

func aUser(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

var (
	toRead    = authorizationv1.ResourceAttributes{Verb: "list", Resource: "configdependencies"}
	toReload  = authorizationv1.ResourceAttributes{Verb: "create", Resource: "configdependencies", Subresource: "reload", Name: "deployment.web"}
	toApprove = authorizationv1.ResourceAttributes{Verb: "create", Resource: "configdependencies", Subresource: "approval", Name: "deployment.web"}
	toSeePods = authorizationv1.ResourceAttributes{Verb: "get", Resource: "configdependencies", Subresource: "pods", Name: "deployment.web"}
)

// rights are the permissions of a user for the workloads of a namespace.
type rights struct{ read, pods, reload, approve bool }

// needs returns the permissions that make rights effective.
func (r rights) needs() (needs []authorizationv1.ResourceAttributes) {
	for need, wanted := range map[authorizationv1.ResourceAttributes]bool{toRead: r.read, toSeePods: r.pods, toReload: r.reload, toApprove: r.approve} {
		if wanted {
			needs = append(needs, need)
		}
	}
	return needs
}

func checkRights(t *testing.T, client configdepv1alpha1.ConfigdepV1alpha1Interface, namespace string, want rights) {
	t.Helper()
	check := func(what string, allowed bool, err error) {
		t.Helper()
		if allowed && err != nil {
			t.Errorf("%s in %q: %v", what, namespace, err)
		}
		if !allowed {
			checkError(t, err, http.StatusForbidden, metav1.StatusReasonForbidden, `in API group "configdep.io"`)
		}
	}
	objects := client.ConfigDependencies(namespace)
	list, err := objects.List(t.Context(), metav1.ListOptions{})
	check("list", want.read, err)
	if want.read && namespace != "" && (err != nil || len(list.Items) != 1) {
		t.Errorf("list = %v", list)
	}
	w, err := objects.Watch(t.Context(), metav1.ListOptions{})
	check("watch", want.read, err)
	if err == nil {
		w.Stop()
	}
	if namespace == "" {
		return
	}
	_, err = objects.Get(t.Context(), "deployment.web", metav1.GetOptions{})
	check("get", want.read, err)
	_, err = objects.GetPods(t.Context(), "deployment.web", metav1.GetOptions{})
	check("pods", want.pods, err)
	_, err = objects.GetPlan(t.Context(), "deployment.web", metav1.GetOptions{})
	check("plan", want.read, err)
	_, err = objects.Reload(t.Context(), "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	check("reload", want.reload, err)
	_, err = objects.Approve(t.Context(), "deployment.web", &v1alpha1.Approval{}, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) { // one without a decision
		err = nil
	}
	check("approve", want.approve, err)
}

// workloadIn creates a namespace with Deployment web.
func workloadIn(t *testing.T) string {
	t.Helper()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	return namespace
}

// The default roles of a cluster include the permissions of artifacts/base.
func TestBuiltInRoles(t *testing.T) {
	t.Parallel()
	mine, other := workloadIn(t), workloadIn(t)
	for role, want := range map[string]rights{
		"view":              {read: true, pods: true},
		"edit":              {read: true, pods: true, reload: true},
		"admin":             {read: true, pods: true, reload: true},
		"configdep-view":    {read: true},
		"configdep-pods":    {pods: true},
		"configdep-reload":  {reload: true},
		"configdep-approve": {read: true, approve: true},
		"":                  {},
	} {
		t.Run("role "+role, func(t *testing.T) {
			t.Parallel()
			user := role + "-of-" + mine
			if role != "" {
				bind(t, aUser(user), mine, role, want.needs()...)
			}
			checkRights(t, as(t, user), mine, want)
			checkRights(t, as(t, user), other, rights{})
			checkRights(t, as(t, user), metav1.NamespaceAll, rights{})
		})
	}
}

// Reading all namespaces requires permission for all namespaces.
func TestReadingAllNamespaces(t *testing.T) {
	t.Parallel()
	namespace := workloadIn(t)
	user := "auditor-of-" + namespace
	create(t, kube.RbacV1().ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "configdep-view"},
		Subjects:   []rbacv1.Subject{aUser(user)},
	})
	awaitRight(t, aUser(user), "", toRead)
	checkRights(t, as(t, user), metav1.NamespaceAll, rights{read: true})
	checkRights(t, as(t, user), namespace, rights{read: true})
}

// A team may get permission to restart a single workload.
func TestReloadByName(t *testing.T) {
	t.Parallel()
	namespace := workloadIn(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("other"))
	view(t, namespace, "deployment.other")
	create(t, kube.RbacV1().Roles(namespace).Create, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reload-web"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"configdep.io"}, Resources: []string{"configdependencies/reload"},
			ResourceNames: []string{"deployment.web"}, Verbs: []string{"create"},
		}, {
			APIGroups: []string{"configdep.io"}, Resources: []string{"configdependencies/plan"},
			ResourceNames: []string{"deployment.web"}, Verbs: []string{"get"},
		}},
	})
	user := "restarter-of-" + namespace
	create(t, kube.RbacV1().RoleBindings(namespace).Create, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reload-web"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reload-web"},
		Subjects:   []rbacv1.Subject{aUser(user)},
	})
	awaitRight(t, aUser(user), namespace, toReload)
	client := as(t, user).ConfigDependencies(namespace)
	if got, err := client.Reload(t.Context(), "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil || !got.Status.Triggered {
		t.Errorf("%v, %v", got, err)
	}
	_, err := client.Reload(t.Context(), "deployment.other", &v1alpha1.Reload{}, metav1.CreateOptions{})
	checkError(t, err, http.StatusForbidden, metav1.StatusReasonForbidden, `"deployment.other"`, `"configdependencies/reload"`)
	if _, err := client.GetPlan(t.Context(), "deployment.web", metav1.GetOptions{}); err != nil {
		t.Errorf("plan: %v", err)
	}
	_, err = client.GetPlan(t.Context(), "deployment.other", metav1.GetOptions{})
	checkError(t, err, http.StatusForbidden, metav1.StatusReasonForbidden, `"deployment.other"`, `"configdependencies/plan"`)
	// This requires no permission to patch, or even read, Deployments.
	if last := view(t, namespace, "deployment.web", reloadedBy(user)).Status.LastReload; last.Trigger != "Request" {
		t.Errorf("lastReload = %+v", last)
	}
}

// reloadedBy checks that the last reload was requested by a user.
func reloadedBy(user string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if last := o.Status.LastReload; last == nil || last.RequestedBy != user {
			return fmt.Errorf("lastReload = %+v, want one by %s", last, user)
		}
		return nil
	}
}

// Clients that connect to the server directly have the same permissions. They cannot impersonate users there.
func TestDirectAccess(t *testing.T) {
	t.Parallel()
	mine, other := workloadIn(t), workloadIn(t)
	create(t, kube.CoreV1().ServiceAccounts(mine).Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}})
	robot := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: mine, Name: "robot"}
	all := rights{read: true, pods: true, reload: true}
	bind(t, robot, mine, "edit", all.needs()...)
	token := tokenOf(t, mine, "robot")
	reloaded := newNamespace(t) // for successful reloads
	bind(t, robot, reloaded, "configdep-reload", toReload)

	for _, replica := range server.Replicas {
		t.Run("with a token, "+replica.Name(), func(t *testing.T) {
			t.Parallel()
			config := replica.RESTConfig()
			config.BearerToken = token
			client := clientset(t, config).ConfigdepV1alpha1()
			checkRights(t, client, mine, all)
			checkRights(t, client, other, rights{})
			checkRights(t, client, metav1.NamespaceAll, rights{})
			name := "of-" + replica.Name()
			create(t, kube.AppsV1().Deployments(reloaded).Create, asleep(name))
			view(t, reloaded, "deployment."+name)
			if _, err := client.ConfigDependencies(reloaded).Reload(t.Context(), "deployment."+name, &v1alpha1.Reload{}, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			view(t, reloaded, "deployment."+name, reloadedBy("system:serviceaccount:"+mine+":robot"))
		})
		t.Run("with an invalid token, "+replica.Name(), func(t *testing.T) {
			t.Parallel()
			config := replica.RESTConfig()
			config.BearerToken = token + "x"
			for _, path := range []string{apiPath, resourcePath(mine), "/version"} {
				if got := send(t, config, request{path: path}); got.code != http.StatusUnauthorized {
					t.Errorf("%s: %d: %s", path, got.code, got.body)
				}
			}
		})
		t.Run("impersonating without permission, "+replica.Name(), func(t *testing.T) {
			t.Parallel()
			config := replica.RESTConfig()
			config.BearerToken = token
			got := send(t, config, request{path: resourcePath(other), header: header("Impersonate-User", "admin", "Impersonate-Group", "system:masters")})
			checkRefused(t, got, refusal{http.StatusForbidden, metav1.StatusReasonForbidden, "cannot impersonate"})
		})
		t.Run("claiming to be the aggregator, "+replica.Name(), func(t *testing.T) {
			t.Parallel()
			forged := header("X-Remote-User", "admin", "X-Remote-Group", "system:masters")
			// Without a certificate.
			got := send(t, replica.RESTConfig(), request{path: resourcePath(mine), header: forged})
			checkRefused(t, got, refusal{http.StatusForbidden, metav1.StatusReasonForbidden, "system:anonymous"})
			// With a token: the robot is the user.
			config := replica.RESTConfig()
			config.BearerToken = token
			got = send(t, config, request{path: resourcePath(other), header: forged})
			checkRefused(t, got, refusal{http.StatusForbidden, metav1.StatusReasonForbidden, "system:serviceaccount:" + mine + ":robot"})
			// With a client certificate: its user is the user.
			forged.Set("X-Remote-User", "other")
			forged.Set("Content-Type", "application/json")
			name := "forged-" + replica.Name()
			create(t, kube.AppsV1().Deployments(reloaded).Create, asleep(name))
			view(t, reloaded, "deployment."+name)
			got = send(t, replica.AdminConfig(), request{http.MethodPost, resourcePath(reloaded) + "/deployment." + name + "/reload", forged, "{}"})
			if got.code != http.StatusCreated {
				t.Errorf("%d: %s", got.code, got.body)
			}
			view(t, reloaded, "deployment."+name, reloadedBy("admin"))
			// With a certificate of a CA that is not trusted.
			config = replica.RESTConfig()
			config.CertData, config.KeyData = strangersCertificate(t)
			got = send(t, config, request{path: resourcePath(mine), header: forged})
			checkRefused(t, got, refusal{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"})
		})
	}
}

// A client without credentials only learns that the server exists.
func TestAnonymousAccess(t *testing.T) {
	t.Parallel()
	namespace := workloadIn(t)
	aggregator := cluster.RESTConfig()
	aggregator.CertData, aggregator.KeyData = nil, nil
	forbidden := refusal{http.StatusForbidden, metav1.StatusReasonForbidden, "system:anonymous"}

	for _, r := range []request{
		{path: resourcePath(namespace)}, {path: resourcePath(namespace) + "/deployment.web"}, {path: apiPath + "/configdependencies"},
		{path: resourcePath(namespace) + "/deployment.web/pods"}, {path: resourcePath(namespace) + "/deployment.web/plan"},
		{path: apiPath}, {path: "/apis/configdep.io"}, {path: "/apis"}, {path: "/openapi/v2"}, {path: "/openapi/v3"}, {path: "/metrics"},
		{path: "/"}, {path: "/debug/pprof/"}, {path: "/debug/flags/v", method: http.MethodPut}, {path: "/healthz/ping"},
		{path: "/readyz/dependency-index-synced"}, {path: "/nothing"},
		{http.MethodPost, resourcePath(namespace) + "/deployment.web/reload", inJSON, "{}"},
	} {
		checkRefused(t, send(t, aggregator, r), forbidden)
		for _, replica := range server.Replicas {
			checkRefused(t, send(t, replica.RESTConfig(), r), forbidden)
		}
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version"} {
		for _, replica := range server.Replicas {
			if got := send(t, replica.RESTConfig(), request{path: path}); got.code != http.StatusOK {
				t.Errorf("%s: %d: %s", path, got.code, got.body)
			}
		}
	}
}
