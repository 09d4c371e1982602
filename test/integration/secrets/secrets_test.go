// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package secrets checks what the server reads, by all its traffic with kube-apiserver: of Secrets no content of some types
// and, with the overlay configmaps-only, none at all; and nothing that the flags of its scope leave out.
package secrets

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Nodes: 1}, func(c *controlplane.ControlPlane) { cluster = c }))
}

const (
	namespace   = "shop"
	tokenType   = "kubernetes.io/service-account-token"
	releaseType = "helm.sh/release.v1"

	// The content of Secrets, and their metadata.
	inToken, inRelease, inDB, ofToken = "CONTENT-OF-TOKEN", "CONTENT-OF-RELEASE", "CONTENT-OF-DB", "METADATA-OF-TOKEN"
)

// shop is a namespace with a Deployment that reads a ConfigMap and Secrets of several types.
type shop struct {
	*testing.T
	client kubernetes.Interface
	api    configdepv1alpha1.ConfigDependencyInterface
}

func token() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot", "note": ofToken}},
		Type:       tokenType, StringData: map[string]string{"mine": inToken},
	}
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t, kubernetes.NewForConfigOrDie(cluster.RESTConfig()), versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies(namespace)}
	return s
}

// fill creates the objects of the namespace.
func (s *shop) fill() {
	s.Helper()
	ctx, core := s.Context(), s.client.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	s.must(err)
	_, err = core.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	s.must(err)
	for _, secret := range []*corev1.Secret{
		token(),
		{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Type: releaseType, StringData: map[string]string{"release": inRelease}},
		{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": inDB}},
	} {
		_, err := core.Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
		s.must(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "1"}}
	_, err = core.ConfigMaps(namespace).Create(ctx, settings, metav1.CreateOptions{})
	s.must(err)
	s.create("web", "token", "release", "db")
}

// create creates a Deployment that has opted in and reads the ConfigMap and Secrets.
func (s *shop) create(name string, secrets ...string) *appsv1.Deployment {
	s.Helper()
	labels := map[string]string{"app": name}
	from := []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	for _, secret := range secrets {
		from = append(from, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}})
	}
	made, err := s.client.AppsV1().Deployments(namespace).Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "0", policy.MinIntervalAnnotation: "0",
		}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1", EnvFrom: from}}},
			},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return made
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// await waits until the view of web satisfies a function.
func (s *shop) await(what string, is func(*v1alpha1.ConfigDependency) bool) *v1alpha1.ConfigDependency {
	s.Helper()
	var found *v1alpha1.ConfigDependency
	await.Until(s, what, func(ctx context.Context) (err error) {
		if found, err = s.api.Get(ctx, "deployment.web", metav1.GetOptions{}); err == nil && !is(found) {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		return err
	})
	return found
}

// inSync reports whether a workload runs with the current content, after a restart for a source or, with an empty
// trigger, without one.
func inSync(trigger string) func(*v1alpha1.ConfigDependency) bool {
	return func(o *v1alpha1.ConfigDependency) bool {
		last := o.Status.LastReload
		return o.Status.State == v1alpha1.StateInSync && o.Status.Conditions[1].Status == metav1.ConditionTrue &&
			(trigger == "" && last == nil || last != nil && last.Trigger == trigger)
	}
}

// revision returns how often the pod template of web has changed: once for each restart.
func (s *shop) revision() int64 {
	s.Helper()
	found, err := s.client.AppsV1().Deployments(namespace).Get(s.Context(), "web", metav1.GetOptions{})
	s.must(err)
	revision, err := strconv.ParseInt(found.Annotations["deployment.kubernetes.io/revision"], 10, 64)
	s.must(err)
	return revision
}

func (s *shop) patchSecret(name, content string) {
	s.Helper()
	_, err := s.client.CoreV1().Secrets(namespace).Patch(s.Context(), name, types.MergePatchType, []byte(`{"stringData": {"more": "`+content+`"}}`), metav1.PatchOptions{})
	s.must(err)
}

// shown returns what a view shows of the sources: whether they are present, and why they do not count.
func shown(o *v1alpha1.ConfigDependency) map[string]string {
	out := map[string]string{}
	for i := range o.Spec.Sources {
		source, present := &o.Spec.Sources[i], "unknown"
		if p := o.Status.Sources[i].Present; p != nil {
			present = fmt.Sprint(*p)
		}
		out[string(source.Kind)+"/"+source.Name] = strings.TrimSpace(present + " " + source.Reason)
	}
	return out
}

// installed installs the server behind a recorder, and checks its logs at the end.
func installed(t *testing.T, r *recorder, o install.Options) *install.Installation {
	t.Helper()
	o.Race, o.Kubeconfig, o.Args = install.RaceDetector, r.kubeconfig, append(o.Args, "--shutdown-delay-duration=0s")
	server, err := install.Install(t.Context(), cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// checkSecretTypes: kube-apiserver sends no content of tokens and of Helm's releases, and views still show whether
// they exist.
func checkSecretTypes(t *testing.T, s *shop) {
	t.Helper()
	r := record(t, inToken, inRelease, inDB, ofToken)
	installed(t, r, install.Options{})
	o := s.await("web is tracked", inSync(""))
	want := map[string]string{"ConfigMap/settings": "true", "Secret/db": "true", "Secret/release": "true NotObserved", "Secret/token": "true NotObserved"}
	if diff := cmp.Diff(want, shown(o)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if says := "Changes of Secret/release and Secret/token are not seen"; !strings.Contains(o.Status.Message, says) {
		t.Errorf("message = %q", o.Status.Message)
	}
	s.must(s.client.CoreV1().Secrets(namespace).Delete(s.Context(), "token", metav1.DeleteOptions{}))
	o = s.await("the token is missing", func(o *v1alpha1.ConfigDependency) bool { return o.Status.State == v1alpha1.StateBlocked })
	if says := "Secret token is missing: new pods cannot start."; !strings.HasPrefix(o.Status.Message, says) || o.Status.Reason != v1alpha1.ReasonSourceMissing {
		t.Errorf("reason = %s, message = %s", o.Status.Reason, o.Status.Message)
	}
	_, err := s.client.CoreV1().Secrets(namespace).Create(s.Context(), token(), metav1.CreateOptions{})
	s.must(err)
	s.await("the token is back", inSync(""))
	s.patchSecret("token", inToken)
	s.patchSecret("release", inRelease)
	if now := s.revision(); now != 1 {
		t.Errorf("revision = %d before a change of content", now)
	}
	s.patchSecret("db", "2")
	s.await("web is restarted", inSync("Secret/db"))
	if now := s.revision(); now != 2 {
		t.Errorf("revision = %d after one restart", now)
	}
	for word, passes := range map[string]bool{inDB: true, ofToken: true, inToken: false, inRelease: false} {
		if r.hasPassed(word) != passes {
			t.Errorf("kube-apiserver sent %s = %t", word, !passes)
		}
	}
	// The requests confirm that: none asks for content of these types.
	streams := map[string]bool{}
	for _, a := range r.all() {
		if !a.ofSecrets() || strings.Contains(a.path, "/namespaces/"+install.Namespace+"/") {
			continue
		}
		partial := strings.Contains(a.accept, "as=PartialObjectMetadata")
		switch {
		case strings.HasPrefix(a.fields, "type!="+tokenType+",type!="+releaseType) && !partial,
			strings.HasPrefix(a.fields, "type="+tokenType) && partial, strings.HasPrefix(a.fields, "type="+releaseType) && partial:
			streams[a.fields] = true
		default:
			t.Errorf("request of the server: %s", &a)
		}
	}
	if len(streams) < 3 {
		t.Errorf("only %v read Secrets", streams)
	}
}

// checkConfigMapsOnly: without permissions for Secrets except its own two, the server shows which workloads use
// Secrets, and restarts workloads when ConfigMaps change. Switching to this mode restarts nothing.
func checkConfigMapsOnly(t *testing.T, s *shop) {
	t.Helper()
	before := s.revision()
	r := record(t, inToken, inRelease, inDB, ofToken)
	installed(t, r, install.Options{Values: "configmaps-only", ManagedCertificates: true})
	o := s.await("web is tracked", func(o *v1alpha1.ConfigDependency) bool {
		return inSync("Secret/db")(o) && shown(o)["Secret/db"] == "unknown NotObserved"
	})
	want := map[string]string{"ConfigMap/settings": "true", "Secret/db": "unknown NotObserved", "Secret/release": "unknown NotObserved", "Secret/token": "unknown NotObserved"}
	if diff := cmp.Diff(want, shown(o)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if says := "configdep reads no Secrets (--read-secrets=false)."; !strings.HasSuffix(o.Status.Message, says) {
		t.Errorf("message = %q", o.Status.Message)
	}
	found, err := s.api.List(s.Context(), metav1.ListOptions{FieldSelector: "source=Secret/db"})
	s.must(err)
	if len(found.Items) != 1 || found.Items[0].Name != "deployment.web" {
		t.Errorf("workloads that use the Secret = %v", found.Items)
	}
	s.patchSecret("db", "3")
	if now := s.revision(); now != before {
		t.Errorf("generation = %[2]d before a change of a ConfigMap, was %[1]d", before, now)
	}
	_, err = s.client.CoreV1().ConfigMaps(namespace).Patch(s.Context(), "settings", types.MergePatchType, []byte(`{"data": {"a": "2"}}`), metav1.PatchOptions{})
	s.must(err)
	o = s.await("web is restarted", inSync("ConfigMap/settings"))
	if complete := o.Status.Conditions[2]; complete.Status != metav1.ConditionTrue {
		t.Errorf("status of the rollout = %+v, want it complete", complete)
	}
	if now := s.revision(); now != before+1 {
		t.Errorf("generation = %[2]d after one restart, was %[1]d", before, now)
	}
	t.Run("the webhook neither looks up Secrets nor waits for them", func(t *testing.T) {
		n := 0
		await.Until(t, "a new workload is tracked from its first pod", func(context.Context) error { // once the CA is published
			n++
			made := s.create(fmt.Sprint("new-", n), "absent")
			if made.Spec.Template.Annotations[policy.ConfigHashAnnotation] == "" {
				return fmt.Errorf("annotations of its template = %v", made.Spec.Template.Annotations)
			}
			return nil
		})
	})
	t.Run("a workload without its Secret is neither blocked nor missing a source", func(*testing.T) {
		s.must(s.client.CoreV1().Secrets(namespace).Delete(s.Context(), "db", metav1.DeleteOptions{}))
		_, err := s.client.CoreV1().ConfigMaps(namespace).Patch(s.Context(), "settings", types.MergePatchType, []byte(`{"data": {"a": "3"}}`), metav1.PatchOptions{})
		s.must(err)
		s.await("web is restarted", func(o *v1alpha1.ConfigDependency) bool {
			return inSync("ConfigMap/settings")(o) && s.revision() == before+2 && o.Status.Conditions[0].Status == metav1.ConditionTrue
		})
	})
	own := map[string]bool{}
	for _, a := range r.all() {
		if a.code == 403 {
			t.Errorf("missing permission: %s", &a)
		}
		if !a.ofSecrets() {
			continue
		}
		name, byName := strings.CutPrefix(a.fields, "metadata.name=")
		if !byName {
			name = a.path[strings.LastIndex(a.path, "/")+1:]
		}
		known := name == ingest.KeySecret || name == install.CertificateSecret
		if !strings.HasPrefix(a.path, "/api/v1/namespaces/"+install.Namespace+"/secrets") || !known {
			t.Errorf("request of the server: %s", &a)
		}
		own[name] = own[name] || byName
	}
	if !own[ingest.KeySecret] || !own[install.CertificateSecret] {
		t.Errorf("the server does not watch its own Secrets: %v", own)
	}
	for _, word := range []string{inToken, inRelease, inDB, ofToken} {
		if r.hasPassed(word) {
			t.Errorf("kube-apiserver sent %s", word)
		}
	}
	for _, tt := range []struct {
		namespace, verb, name string
		allowed               bool
	}{
		{"", "list", "", false},
		{"", "watch", "", false},
		{namespace, "list", "", false},
		{namespace, "get", "db", false},
		{namespace, "list", "db", false},
		{install.Namespace, "list", "", false},
		{install.Namespace, "watch", ingest.KeySecret, true},
		{install.Namespace, "watch", install.CertificateSecret, true},
	} {
		review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(s.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + install.Namespace + ":" + install.Name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: tt.namespace, Verb: tt.verb, Resource: "secrets", Name: tt.name},
			},
		}, metav1.CreateOptions{})
		s.must(err)
		if review.Status.Allowed != tt.allowed {
			t.Errorf("%+v: allowed = %t", tt, review.Status.Allowed)
		}
	}
}

// These run one after the other in one cluster, like a switch from the base to values of the chart.
func TestSecrets(t *testing.T) {
	s := newShop(t)
	s.fill()
	for _, step := range []struct {
		name  string
		check func(*testing.T, *shop)
	}{
		{"Secrets of some types are read without content", checkSecretTypes},
		{"without permissions for Secrets", checkConfigMapsOnly},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			step.check(t, &shop{t, s.client, s.api})
		})
		if !ok {
			return
		}
		closeEntrances(t)
	}
}

// closeEntrances removes what leads to a server, as none runs.
func closeEntrances(t *testing.T) {
	t.Helper()
	for _, entrance := range []string{"apiservice/" + install.APIService, "mutatingwebhookconfiguration/" + install.Name} {
		if _, err := cluster.Kubectl(t.Context(), "delete", entrance); err != nil {
			t.Fatal(err)
		}
	}
}
