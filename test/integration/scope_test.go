// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// branch is a namespace with a Deployment web that reads Secrets, and has no annotations.
type branch struct {
	*testing.T
	namespace string
	client    kubernetes.Interface
	api       configdepv1alpha1.ConfigDependencyInterface
}

// newBranch creates a namespace with labels, and in it a ConfigMap, and Secrets with labels of their own, all with a word as
// content, which web reads.
func newBranch(t *testing.T, namespace string, labels map[string]string, secrets map[string]map[string]string, word string) *branch {
	t.Helper()
	b := &branch{t, namespace, kubernetes.NewForConfigOrDie(cluster.RESTConfig()), versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies(namespace)}
	_, err := b.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}, metav1.CreateOptions{})
	b.must(err)
	_, err = b.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"content": word + "-settings"},
	}, metav1.CreateOptions{})
	b.must(err)
	from := []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	for name, labels := range secrets {
		_, err := b.client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, StringData: map[string]string{"content": word + "-" + name},
		}, metav1.CreateOptions{})
		b.must(err)
		from = append(from, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
	}
	app := map[string]string{"app": "web"}
	_, err = b.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1", EnvFrom: from}}},
			},
		},
	}, metav1.CreateOptions{})
	b.must(err)
	return b
}

func (b *branch) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// change changes the content of a Secret, and returns its version.
func (b *branch) change(name, content string) (version string) {
	b.Helper()
	made, err := b.client.CoreV1().Secrets(b.namespace).Patch(b.Context(), name, types.MergePatchType, []byte(`{"stringData": {"more": "`+content+`"}}`), metav1.PatchOptions{})
	b.must(err)
	return made.ResourceVersion
}

func (b *branch) label(env string) {
	b.Helper()
	_, err := b.client.CoreV1().Namespaces().Patch(b.Context(), b.namespace, types.MergePatchType, []byte(`{"metadata": {"labels": {"env": "`+env+`"}}}`), metav1.PatchOptions{})
	b.must(err)
}

// restarts returns what restarts have changed: the annotations of the pod template.
func (b *branch) restarts() map[string]string {
	b.Helper()
	found, err := b.client.AppsV1().Deployments(b.namespace).Get(b.Context(), "web", metav1.GetOptions{})
	b.must(err)
	return found.Spec.Template.Annotations
}

// sameAs fails the test if there was a restart.
func (b *branch) sameAs(before map[string]string, when string) {
	b.Helper()
	if diff := cmp.Diff(before, b.restarts(), cmpopts.EquateEmpty()); diff != "" {
		b.Errorf("%s: web was restarted %s (-before +after):\n%s", b.namespace, when, diff)
	}
}

// create creates a Deployment that has opted in and reads the Secret db, and reports whether the webhook has recorded it.
func (b *branch) create(ctx context.Context, name string) (recorded bool, err error) {
	app := map[string]string{"app": name}
	made, err := b.client.AppsV1().Deployments(b.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{policy.ReloadAnnotation: "auto"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1", EnvFrom: []corev1.EnvFromSource{
					{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
				}}}},
			},
		},
	}, metav1.CreateOptions{})
	return err == nil && made.Spec.Template.Annotations[policy.ConfigHashAnnotation] != "", err
}

// await waits until the view of web satisfies a function.
func (b *branch) await(what string, is func(*v1alpha1.ConfigDependency) bool) *v1alpha1.ConfigDependency {
	b.Helper()
	var found *v1alpha1.ConfigDependency
	await.Until(b, b.namespace+": "+what, func(ctx context.Context) (err error) {
		if found, err = b.api.Get(ctx, "deployment.web", metav1.GetOptions{}); err == nil && !is(found) {
			err = fmt.Errorf("reload = %+v, status = %+v", found.Spec.Reload, found.Status)
		}
		return err
	})
	return found
}

// unmanaged reports whether a workload is not restarted because of --namespace-selector, and a Secret is seen in a version.
func unmanaged(secret, version string) func(*v1alpha1.ConfigDependency) bool {
	return func(o *v1alpha1.ConfigDependency) bool {
		seen := version == ""
		for i := range o.Status.Sources {
			s := &o.Status.Sources[i]
			seen = seen || s.Name == secret && s.ResourceVersion == version
		}
		return seen && o.Status.State == v1alpha1.StateUnmanaged && o.Spec.Reload.Mode == v1alpha1.ReloadOff && o.Spec.Reload.DeclaredBy == "--namespace-selector"
	}
}

// served returns where a replica serves something without TLS, by its log.
func served(t *testing.T, server *install.Installation, what string) string {
	t.Helper()
	content, err := os.ReadFile(server.Replicas[0].Log())
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"Serving to every client, without TLS" what="`+what+`" address="([^"]+)"`).FindAllStringSubmatch(string(content), -1)
	if len(found) != 1 {
		t.Fatalf("the log says %d times where %s are served", len(found), what)
	}
	return "http://" + found[0][1]
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s (%v)", url, response.Status, err)
	}
	return string(body)
}

// Restarts follow the labels of namespaces. Of namespaces and kinds that are ignored, kube-apiserver sends nothing.
func TestScope_Namespaces(t *testing.T) {
	const ignored = "CONTENT-OF-IGNORED"
	db := map[string]map[string]string{"db": nil}
	test, prod := newBranch(t, "scope-test", map[string]string{"env": "test"}, db, "x"), newBranch(t, "scope-prod", map[string]string{"env": "prod"}, db, "x")
	out := newBranch(t, "scope-out", map[string]string{"env": "test"}, db, ignored)
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
	_, err := test.client.BatchV1().Jobs(test.namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{})
	test.must(err)
	_, err = test.client.BatchV1().CronJobs(test.namespace).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "often"}, Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}},
	}, metav1.CreateOptions{})
	test.must(err)

	r := record(t, ignored)
	server := installed(t, r, install.Options{Args: []string{
		"--namespaces-to-ignore=" + out.namespace + ",kube-system", `--namespace-selector="env:test"`, "--ignored-workload-types=jobs,cronjobs", "--auto-reload-all",
		"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--log-level=info", "--sync-after-restart=true", "--is-Argo-Rollouts=true",
		"--enable-pprof", "--pprof-addr=127.0.0.1:0", "--insecure-metrics-bind-address=127.0.0.1:0",
	}})
	defer closeEntrances(t)
	test.await("is tracked", inSync(""))
	prod.await("is not selected", unmanaged("", ""))

	t.Log("the webhook records workloads where they are restarted, and looks nothing up for others")
	n := 0
	await.Until(t, "a new workload is recorded", func(ctx context.Context) error { // once the CA is published
		n++
		recorded, err := test.create(ctx, fmt.Sprint("new-", n))
		if err == nil && !recorded {
			err = errors.New("it is not")
		}
		return err
	})
	for _, b := range []*branch{prod, out} {
		if recorded, err := b.create(t.Context(), "new"); err != nil || recorded {
			t.Errorf("%s: recorded = %t (%v)", b.namespace, recorded, err)
		}
	}

	t.Log("a change restarts the workload in the namespace that is selected, and no other")
	out.change("db", "1")
	seen := prod.change("db", "1")
	test.change("db", "1")
	test.await("is restarted", inSync("Secret/db"))
	prod.await("has the change been seen", unmanaged("db", seen))
	prod.sameAs(nil, "in a namespace that is not selected")

	t.Log("the namespace gets the label: the workload opts in as it is, and the next change restarts it")
	prod.label("test")
	prod.await("is tracked", inSync(""))
	prod.sameAs(nil, "after the namespace got the label")
	prod.change("db", "2")
	prod.await("is restarted", inSync("Secret/db"))
	before, testBefore := prod.restarts(), test.restarts()

	t.Log("the namespace loses the label")
	prod.label("prod")
	prod.await("is not selected", unmanaged("", ""))
	prod.await("has the change been seen", unmanaged("db", prod.change("db", "3")))
	test.change("db", "2")
	test.await("is restarted", func(o *v1alpha1.ConfigDependency) bool {
		return inSync("Secret/db")(o) && !maps.Equal(test.restarts(), testBefore)
	})
	prod.sameAs(before, "after the namespace lost the label")
	out.sameAs(nil, "in a namespace that is ignored")

	all, err := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies("").List(t.Context(), metav1.ListOptions{})
	test.must(err)
	for i := range all.Items {
		o := &all.Items[i]
		if o.Namespace == out.namespace || o.Spec.WorkloadRef.Kind == "Job" || o.Spec.WorkloadRef.Kind == "CronJob" {
			t.Errorf("%s/%s is shown", o.Namespace, o.Name)
		}
	}
	if r.hasPassed(ignored) {
		t.Error("kube-apiserver sent content of a namespace that is ignored")
	}
	streams := 0
	for _, a := range r.all() {
		parts := strings.Split(strings.Trim(a.path, "/"), "/")
		resource := parts[len(parts)-1]
		switch {
		case resource == "jobs", resource == "cronjobs", a.code == http.StatusForbidden, strings.Contains(a.path, out.namespace):
			t.Errorf("request of the server: %s", &a)
		case strings.Contains(a.path, "/namespaces/"), a.method != http.MethodGet:
		case a.ofSecrets(), resource == "configmaps", resource == "pods", strings.HasPrefix(a.path, "/apis/apps/v1/"):
			streams++
			if !strings.Contains(a.fields, "metadata.namespace!="+out.namespace+",metadata.namespace!=kube-system") {
				t.Errorf("request of the server: %s", &a)
			}
		}
	}
	if streams < 8 {
		t.Errorf("only %d requests for all namespaces", streams)
	}

	if text := get(t, served(t, server, "metrics")+"/metrics"); !strings.Contains(text, "configdep_rollouts_total{") {
		t.Errorf("metrics = %.500s", text)
	}
	if text := get(t, served(t, server, "profiles")+"/debug/pprof/"); !strings.Contains(text, "goroutine") {
		t.Errorf("profiles = %.500s", text)
	}
	content, err := os.ReadFile(server.Replicas[0].Log())
	test.must(err)
	for _, notice := range []string{"--sync-after-restart is not needed", "--is-Argo-Rollouts has no effect: this version does not read Argo Rollouts."} {
		if n := strings.Count(string(content), notice); n != 1 {
			t.Errorf("the log says %d times: %s", n, notice)
		}
	}
	if !strings.Contains(string(content), `"Event occurred"`) { // with -v=2
		t.Error("--log-level=info has no effect")
	}
}

// Of ConfigMaps and Secrets without a label, kube-apiserver sends nothing, and workloads that need them are neither blocked nor
// restarted for them.
func TestScope_Labels(t *testing.T) {
	const word = "CONTENT-BY-LABEL"
	b := newBranch(t, "scope-labels", nil, map[string]map[string]string{"with": {"reload": "true"}, "without": nil}, word)
	r := record(t, word+"-settings", word+"-without", word+"-with", "CHANGE-OF-WITHOUT")
	installed(t, r, install.Options{Args: []string{
		"--resource-label-selector=reload:*", "--namespaces=" + b.namespace, "--default-reload=auto", "--settle=0s", "--release-settle=0s", "--min-interval=0s",
	}})
	defer closeEntrances(t)
	o := b.await("is tracked", inSync(""))
	if diff := cmp.Diff(map[string]string{"ConfigMap/settings": "unknown", "Secret/with": "true", "Secret/without": "unknown"}, shown(o)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if resolved := o.Status.Conditions[0]; resolved.Status != metav1.ConditionTrue {
		t.Errorf("condition = %+v", resolved)
	}
	b.change("without", "CHANGE-OF-WITHOUT")
	b.change("with", "1")
	b.await("is restarted", inSync("Secret/with"))
	found, err := b.client.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	b.must(err)
	if revision := found.Annotations["deployment.kubernetes.io/revision"]; revision != "2" {
		t.Errorf("revision = %s after one restart", revision)
	}
	for passed, want := range map[string]bool{word + "-settings": false, word + "-without": false, word + "-with": true, "CHANGE-OF-WITHOUT": false} {
		if r.hasPassed(passed) != want {
			t.Errorf("kube-apiserver sent %s: %t", passed, !want)
		}
	}
}

// A server that reads no ConfigMaps, and has no right on them, asks for none but its own, which it lists and watches by name.
func TestScope_WithoutConfigMaps(t *testing.T) {
	const word = "CONTENT-BESIDE-CONFIGMAPS"
	b := newBranch(t, "scope-configmaps", nil, map[string]map[string]string{"db": nil}, word)
	r := record(t, word+"-settings", word+"-db")
	installed(t, r, install.Options{Values: "secrets-only", ManagedCertificates: true, Args: []string{
		"--namespaces=" + b.namespace, "--default-reload=auto", "--settle=0s", "--release-settle=0s", "--min-interval=0s",
	}})
	defer closeEntrances(t)
	o := b.await("is tracked", inSync(""))
	if diff := cmp.Diff(map[string]string{"ConfigMap/settings": "unknown NotObserved", "Secret/db": "true"}, shown(o)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if says := "Changes of ConfigMap/settings are not seen: configdep reads no ConfigMaps (--read-configmaps=false)."; !strings.HasSuffix(o.Status.Message, says) {
		t.Errorf("message = %q", o.Status.Message)
	}
	b.change("db", "1")
	b.await("is restarted", inSync("Secret/db"))
	if r.hasPassed(word+"-settings") || !r.hasPassed(word+"-db") {
		t.Error("kube-apiserver sent the content of the ConfigMap, or not that of the Secret")
	}
	own := false
	for _, a := range r.all() {
		if a.code == http.StatusForbidden {
			t.Errorf("missing permission: %s", &a)
		}
		if !strings.HasSuffix(a.path, "/configmaps") {
			continue
		}
		byName := strings.HasPrefix(a.fields, "metadata.name=")
		switch a.path {
		case "/api/v1/namespaces/" + install.Namespace + "/configmaps":
			own = own || byName && a.code == http.StatusOK
		case "/api/v1/namespaces/kube-system/configmaps": // the CA of the front proxy
		default:
			byName = false
		}
		if !byName {
			t.Errorf("request of the server: %s", &a)
		}
	}
	if !own {
		t.Error("the server does not watch its own ConfigMap")
	}
}
