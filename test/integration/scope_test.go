// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// The types of Secrets whose content is not read, and what the Secrets of a test contain.
const (
	tokenType   = "kubernetes.io/service-account-token"
	releaseType = "helm.sh/release.v1"

	inToken, inRelease, inDB, ofToken = "CONTENT-OF-TOKEN", "CONTENT-OF-RELEASE", "CONTENT-OF-DB", "METADATA-OF-TOKEN"
)

func (s *shop) secret(name, kind, key, content string) {
	s.Helper()
	o := secret(name, map[string]string{key: content})
	if o.Type = corev1.SecretType(kind); kind == tokenType {
		o.Annotations = pairs(corev1.ServiceAccountNameKey, "robot", "note", ofToken)
	}
	create(s.T, kube.CoreV1().Secrets(s.namespace).Create, o)
}

// createReader creates a Deployment that has opted in and reads ConfigMap settings and Secrets.
func (s *shop) createReader(name string, secrets ...string) {
	s.Helper()
	o := single(name, envFromConfigMap("settings"))
	for _, secret := range secrets {
		envFromSecret(secret)(&o.Spec.Template.Spec)
	}
	o.Annotations = auto
	s.create(o)
}

// sources returns what a view shows of the sources: whether they are present, and why they do not count.
func sources(o *v1alpha1.ConfigDependency) map[string]string {
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

func checkSources(t *testing.T, o *v1alpha1.ConfigDependency, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, sources(o)); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}

func (s *shop) wantTemplates(want int, when string) {
	s.Helper()
	if got := s.templates("web"); got != want {
		s.Errorf("web has had %d templates %s, want %d", got, when, want)
	}
}

// neverRestarted checks that there was no restart.
func neverRestarted(o *v1alpha1.ConfigDependency) error {
	if last := o.Status.LastReload; last != nil {
		return fmt.Errorf("lastReload = %+v", last)
	}
	return nil
}

// checkPassed checks which words kube-apiserver has sent to the server.
func (r *recorder) checkPassed(t *testing.T, words map[string]bool) {
	t.Helper()
	for word, want := range words {
		if r.hasPassed(word) != want {
			t.Errorf("kube-apiserver sent %s = %t", word, !want)
		}
	}
}

// accountOf creates a ServiceAccount with the rights that the chart grants with a file of its folder ci, and returns its name
// once they are effective.
func accountOf(t *testing.T, values string) string {
	t.Helper()
	manifests, err := install.Render(t.Context(), values)
	if err != nil {
		t.Fatal(err)
	}
	var rights []string
	kinds := regexp.MustCompile(`(?m)^kind: (ServiceAccount|(Cluster)?Role(Binding)?)$`)
	for manifest := range strings.SplitSeq(string(manifests), "\n---\n") {
		if kinds.MatchString(manifest) && strings.Contains(manifest, "\n  name: configdep-apiserver") {
			rights = append(rights, strings.ReplaceAll(manifest, "name: configdep-apiserver", "name: "+values))
		}
	}
	file := filepath.Join(t.TempDir(), "rights.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(rights, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", file)
	for _, need := range []authorizationv1.ResourceAttributes{
		{Verb: "list", Group: "apps", Resource: "deployments"},
		{Verb: "list", Group: "apiregistration.k8s.io", Resource: "apiservices", Name: install.APIService},
		{Verb: "get", Resource: "secrets", Namespace: install.Namespace, Name: ingest.KeySecret},
		{Verb: "get", Resource: "secrets", Namespace: install.Namespace, Name: install.CertificateSecret},
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Verb: "watch", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication"},
	} {
		await.Until(t, fmt.Sprintf("%s may %s %s", values, need.Verb, need.Resource), func(ctx context.Context) error {
			if !mayDo(ctx, values, need) {
				return errors.New("not yet")
			}
			return nil
		})
	}
	return values
}

// mayDo reports whether a ServiceAccount in the namespace of the server may do something.
func mayDo(ctx context.Context, account string, what authorizationv1.ResourceAttributes) bool {
	review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + install.Namespace + ":" + account, ResourceAttributes: &what},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}

// kube-apiserver sends no content of tokens and of Helm's releases, and views still show whether they exist. Then, without permissions for
// Secrets except its own two, the server shows which workloads use Secrets, and restarts workloads when ConfigMaps change. Switching to that
// restarts nothing.
func TestScope_Secrets(t *testing.T) {
	t.Parallel()
	s := newOwnShop(t)
	create(t, kube.CoreV1().ServiceAccounts(s.namespace).Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}})
	s.secret("token", tokenType, "mine", inToken)
	s.secret("release", releaseType, "release", inRelease)
	s.write(db, "password", inDB)
	s.write("ConfigMap/settings", "a", "1")
	s.createReader("web", "token", "release", "db")

	all := startRecorder(t, inToken, inRelease, inDB, ofToken)
	before := s.serve(install.ReplicaOptions{Kubeconfig: all.kubeconfig(t, install.Name)})
	s.checkSecretTypes(all)
	before.Kill()
	none := startRecorder(t, inToken, inRelease, inDB, ofToken)
	account := accountOf(t, "configmaps-only")
	s.serve(install.ReplicaOptions{Kubeconfig: none.kubeconfig(t, account), Args: []string{"--read-secrets=false", "--kinds-config="}})
	s.checkConfigMapsOnly(none, account)
}

func (s *shop) checkSecretTypes(r *recorder) {
	s.Helper()
	o := s.view("deployment.web", applied, neverRestarted)
	checkSources(s.T, o, map[string]string{"ConfigMap/settings": "true", "Secret/db": "true", "Secret/release": "true NotObserved", "Secret/token": "true NotObserved"})
	if says := "Changes of Secret/release and Secret/token are not seen"; !strings.Contains(o.Status.Message, says) {
		s.Errorf("message = %q", o.Status.Message)
	}
	remove(s.T, kube.CoreV1().Secrets(s.namespace).Delete, "token")
	o = s.view("deployment.web", is(v1alpha1.StateBlocked, v1alpha1.ReasonSourceMissing))
	if says := "Secret token is missing: new pods cannot start."; !strings.HasPrefix(o.Status.Message, says) {
		s.Errorf("message = %s", o.Status.Message)
	}
	s.secret("token", tokenType, "mine", inToken)
	s.view("deployment.web", applied, neverRestarted)
	s.write("Secret/token", "more", inToken)
	s.write("Secret/release", "more", inRelease)
	s.wantTemplates(1, "before a change of content")
	s.view("deployment.web", applied, at(s.write(db, "more", "2")), restartedFor(string(db)))
	s.wantTemplates(2, "after one restart")
	r.checkPassed(s.T, map[string]bool{inDB: true, ofToken: true, inToken: false, inRelease: false})
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
			s.Errorf("request of the server: %s", &a)
		}
	}
	if len(streams) < 3 {
		s.Errorf("only %v read Secrets", streams)
	}
}

func (s *shop) checkConfigMapsOnly(r *recorder, account string) {
	s.Helper()
	const unknown = "unknown NotObserved"
	o := s.view("deployment.web", applied, restartedFor(string(db)))
	checkSources(s.T, o, map[string]string{"ConfigMap/settings": "true", "Secret/db": unknown, "Secret/release": unknown, "Secret/token": unknown})
	if says := "configdep reads no Secrets (--read-secrets=false)."; !strings.HasSuffix(o.Status.Message, says) {
		s.Errorf("message = %q", o.Status.Message)
	}
	found, err := s.api().List(s.Context(), metav1.ListOptions{FieldSelector: "source=Secret/db"})
	s.must(err)
	if len(found.Items) != 1 || found.Items[0].Name != "deployment.web" {
		s.Errorf("workloads that use the Secret = %v", found.Items)
	}
	s.write(db, "more", "3")
	s.wantTemplates(2, "before a change of a ConfigMap")
	o = s.view("deployment.web", applied, at(s.write("ConfigMap/settings", "a", "2")), restartedFor("ConfigMap/settings"))
	if complete := o.Status.Conditions[2]; complete.Status != metav1.ConditionTrue {
		s.Errorf("status of the rollout = %+v, want it complete", complete)
	}
	s.wantTemplates(3, "after one restart")
	// A workload without its Secret is neither blocked nor missing a source.
	remove(s.T, kube.CoreV1().Secrets(s.namespace).Delete, "db")
	s.view("deployment.web", applied, at(s.write("ConfigMap/settings", "a", "3")), resolved(metav1.ConditionTrue, v1alpha1.ReasonAllPresent))
	s.wantTemplates(4, "after another restart")
	own := map[string]bool{}
	for _, a := range r.all() {
		if a.code == http.StatusForbidden {
			s.Errorf("missing permission: %s", &a)
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
			s.Errorf("request of the server: %s", &a)
		}
		own[name] = own[name] || byName
	}
	if !own[ingest.KeySecret] || !own[install.CertificateSecret] {
		s.Errorf("the server does not watch its own Secrets: %v", own)
	}
	r.checkPassed(s.T, map[string]bool{inToken: false, inRelease: false, inDB: false, ofToken: false})
	for what, want := range map[authorizationv1.ResourceAttributes]bool{
		{Verb: "list", Resource: "secrets"}:                                                                 false,
		{Verb: "watch", Resource: "secrets"}:                                                                false,
		{Verb: "list", Resource: "secrets", Namespace: s.namespace}:                                         false,
		{Verb: "get", Resource: "secrets", Namespace: s.namespace, Name: "db"}:                              false,
		{Verb: "list", Resource: "secrets", Namespace: s.namespace, Name: "db"}:                             false,
		{Verb: "list", Resource: "secrets", Namespace: install.Namespace}:                                   false,
		{Verb: "watch", Resource: "secrets", Namespace: install.Namespace, Name: ingest.KeySecret}:          true,
		{Verb: "watch", Resource: "secrets", Namespace: install.Namespace, Name: install.CertificateSecret}: true,
	} {
		if allowed := mayDo(s.Context(), account, what); allowed != want {
			s.Errorf("%+v: allowed = %t", what, allowed)
		}
	}
}

// newBranch returns an own shop with a ConfigMap, and Secrets, all with a word as content, which web reads. Web has no annotations.
func newBranch(t *testing.T, word string, labels []string, secrets ...string) *shop {
	t.Helper()
	s := newOwnShop(t, labels...)
	s.write("ConfigMap/settings", "content", word+"-settings")
	web := single("web", envFromConfigMap("settings"))
	for _, name := range secrets {
		s.write(ref("Secret/"+name), "content", word+"-"+name)
		envFromSecret(name)(&web.Spec.Template.Spec)
	}
	s.create(web)
	return s
}

// restarts returns what restarts have changed: the annotations of the pod template.
func (s *shop) restarts() map[string]string { return s.deployment("web").Spec.Template.Annotations }

// sameAs fails the test if there was a restart.
func (s *shop) sameAs(before map[string]string, when string) {
	s.Helper()
	if diff := cmp.Diff(before, s.restarts(), cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("%s: web was restarted %s (-before +after):\n%s", s.namespace, when, diff)
	}
}

func (s *shop) relabel(env string) {
	s.Helper()
	edit(s.T, kube.CoreV1().Namespaces(), s.namespace, func(n *corev1.Namespace) { n.Labels["env"] = env })
}

// unselected checks that a workload is not restarted because of --namespace-selector.
func unselected(o *v1alpha1.ConfigDependency) error {
	if o.Spec.Reload.Mode != v1alpha1.ReloadOff || o.Spec.Reload.DeclaredBy != "--namespace-selector" {
		return fmt.Errorf("reload = %+v", o.Spec.Reload)
	}
	return nil
}

// served returns where a replica serves something without TLS, by its log.
func served(t *testing.T, r *install.Replica, what string) string {
	t.Helper()
	content, err := os.ReadFile(r.Log())
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"Serving to every client, without TLS" what="`+what+`" address="([^"]+)"`).FindAllStringSubmatch(string(content), -1)
	if len(found) != 1 {
		t.Fatalf("the log says %d times where %s are served", len(found), what)
	}
	return "http://" + found[0][1]
}

// Restarts follow the labels of namespaces. Of namespaces and kinds that are ignored, kube-apiserver sends nothing.
func TestScope_Namespaces(t *testing.T) {
	// Not parallel: its server sees all namespaces.
	const ignored = "CONTENT-OF-IGNORED"
	selected := []string{"env", "test"}
	test, prod, out := newBranch(t, "x", selected, "db"), newBranch(t, "x", []string{"env", "prod"}, "db"), newBranch(t, ignored, selected, "db")
	create(t, kube.BatchV1().Jobs(test.namespace).Create, job("once"))
	create(t, kube.BatchV1().CronJobs(test.namespace).Create, cronJob("often"))

	r := startRecorder(t, ignored)
	server := serveShops(install.ReplicaOptions{Kubeconfig: r.kubeconfig(t, install.Name), Args: []string{
		"--namespaces-to-ignore=" + out.namespace + ",kube-system", `--namespace-selector="env:test"`, "--ignored-workload-types=jobs,cronjobs", "--auto-reload-all",
		"--log-level=info", "--sync-after-restart=true", "--is-Argo-Rollouts=true",
		"--enable-pprof", "--pprof-addr=127.0.0.1:0", "--insecure-metrics-bind-address=127.0.0.1:0", "--reload-jobs=false", "--kinds-config=",
	}}, test, prod, out)
	test.view("deployment.web", applied, neverRestarted)
	prod.view("deployment.web", unselected)

	t.Log("a change restarts the workload in the namespace that is selected, and no other")
	out.write(db, "more", "1")
	prod.view("deployment.web", unselected, at(prod.write(db, "more", "1")))
	test.view("deployment.web", applied, at(test.write(db, "more", "1")), restartedFor(string(db)))
	prod.sameAs(nil, "in a namespace that is not selected")

	t.Log("the namespace gets the label: the workload opts in as it is, and the next change restarts it")
	prod.relabel("test")
	prod.view("deployment.web", recorded, neverRestarted)
	prod.sameAs(nil, "after the namespace got the label")
	prod.view("deployment.web", applied, at(prod.write(db, "more", "2")), restartedFor(string(db)))
	before, testBefore := prod.restarts(), test.restarts()

	t.Log("the namespace loses the label")
	prod.relabel("prod")
	prod.view("deployment.web", unselected)
	prod.view("deployment.web", unselected, at(prod.write(db, "more", "3")))
	test.view("deployment.web", applied, at(test.write(db, "more", "2")))
	if maps.Equal(test.restarts(), testBefore) {
		t.Error("web was not restarted in the namespace that is selected")
	}
	prod.sameAs(before, "after the namespace lost the label")
	out.sameAs(nil, "in a namespace that is ignored")

	all, err := test.shownBy[0].ConfigdepV1alpha1().ConfigDependencies("").List(t.Context(), metav1.ListOptions{})
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

	for what, want := range map[string]string{"metrics": "/metrics configdep_rollouts_total{", "profiles": "/debug/pprof/ goroutine"} {
		path, text, _ := strings.Cut(want, " ")
		if got := send(t, &rest.Config{Host: served(t, server, what)}, request{path: path}); !strings.Contains(string(got.body), text) {
			t.Errorf("%s = %.500s", what, got.body)
		}
	}
	content, err := os.ReadFile(server.Log())
	test.must(err)
	for _, notice := range []string{"--sync-after-restart is not needed", "--is-Argo-Rollouts has no effect: --kinds says whether Argo Rollouts are read."} {
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
	t.Parallel()
	const word = "CONTENT-BY-LABEL"
	s := newBranch(t, word, nil, "with", "without")
	s.patchSource("Secret/with", map[string]any{"metadata": map[string]any{"labels": pairs("reload", "true")}})
	r := startRecorder(t, word+"-settings", word+"-without", word+"-with", "CHANGE-OF-WITHOUT")
	s.serve(install.ReplicaOptions{Kubeconfig: r.kubeconfig(t, install.Name), Args: []string{"--resource-label-selector=reload:*", "--default-reload=auto"}})
	// The label was set after the pods had started, and before the server began to read.
	o := s.view("deployment.web", recorded, is(v1alpha1.StateUnknown, "WrittenSinceStart"), neverRestarted, resolved(metav1.ConditionTrue, v1alpha1.ReasonAllPresent))
	checkSources(t, o, map[string]string{"ConfigMap/settings": "unknown", "Secret/with": "true", "Secret/without": "unknown"})
	s.write("Secret/without", "more", "CHANGE-OF-WITHOUT")
	s.view("deployment.web", applied, at(s.write("Secret/with", "more", "1")), restartedFor("Secret/with"))
	s.wantTemplates(2, "after one restart")
	r.checkPassed(t, map[string]bool{word + "-settings": false, word + "-without": false, word + "-with": true, "CHANGE-OF-WITHOUT": false})
}

// A server that reads no ConfigMaps, and has no right on them, asks for none but its own, which it lists and watches by name.
func TestScope_WithoutConfigMaps(t *testing.T) {
	t.Parallel()
	const word = "CONTENT-BESIDE-CONFIGMAPS"
	s := newBranch(t, word, nil, "db")
	r := startRecorder(t, word+"-settings", word+"-db")
	s.serve(install.ReplicaOptions{Kubeconfig: r.kubeconfig(t, accountOf(t, "secrets-only")), Args: []string{
		"--read-configmaps=false", "--kinds-config=", "--default-reload=auto",
	}})
	o := s.view("deployment.web", applied, neverRestarted)
	checkSources(t, o, map[string]string{"ConfigMap/settings": "unknown NotObserved", "Secret/db": "true"})
	if says := "Changes of ConfigMap/settings are not seen: configdep reads no ConfigMaps (--read-configmaps=false)."; !strings.HasSuffix(o.Status.Message, says) {
		t.Errorf("message = %q", o.Status.Message)
	}
	s.view("deployment.web", applied, at(s.write(db, "more", "1")), restartedFor(string(db)))
	r.checkPassed(t, map[string]bool{word + "-settings": false, word + "-db": true})
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
