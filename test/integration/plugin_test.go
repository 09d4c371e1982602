// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/plugin"
	"github.com/configdep/configdep/test/await"
)

// The exit codes that docs/plugin.md has.
const (
	pluginDone = iota
	_
	pluginFound
	pluginPartly
	pluginTimeout
	pluginForbidden
	pluginInterrupted = 130
)

// ran is the outcome of a command of kubectl configdep.
type ran struct {
	code        int
	out, errOut string
	namespace   string
}

// plugin runs a command of kubectl configdep in the namespace.
func (s *shop) plugin(args ...string) ran {
	s.Helper()
	return s.pluginOf(append([]string{"--kubeconfig=" + cluster.Kubeconfig(), "-n", s.namespace}, args...)...)
}

// pluginOf runs a command of kubectl configdep without other arguments.
func (s *shop) pluginOf(args ...string) ran {
	s.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	code := plugin.Run(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return ran{code, out.String(), errOut.String(), s.namespace}
}

// varying is what differs from one run to the next.
var varying = []struct {
	of *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[\d:]+Z`), "TIME"},
	{regexp.MustCompile(`web-[0-9a-f]{8,10}-\w{5}`), "web-POD"},
	{regexp.MustCompile(`\b(\d+m)?\d+s\b`), "AGE"},
	{regexp.MustCompile(` +\n`), "\n"},
	{regexp.MustCompile(` {2,}`), "  "},
}

// golden compares the output of a command with what it should be, but for times, names of pods, and the width of columns.
func (r ran) golden(t *testing.T, what string, code int, want string) {
	t.Helper()
	got := strings.ReplaceAll(r.out+r.errOut, r.namespace, "NAMESPACE")
	for _, v := range varying {
		got = v.of.ReplaceAllString(got, v.by)
	}
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); r.code != code || diff != "" {
		t.Errorf("%s: code %d, want %d; output (-want +got):\n%s", what, r.code, code, diff)
	}
}

// Each command says what is stale, and why, and reload and wait end that.
func TestPlugin(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x", "user", "shop")
	s.create(deployment("web", envSecretKey("db", "password")))
	s.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	awaitAge(t, s.namespace, "web")
	s.plugin("stale").golden(t, "nothing is stale", pluginDone, "Nothing runs with old content in namespace NAMESPACE (1 workload).")
	s.write(db, "password", "y")
	s.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"))

	s.plugin("stale").golden(t, "stale", pluginFound, `
WORKLOAD  SINCE  STALE PODS  SOURCES  STATE  NEXT
deployment/web  AGE  2/2  Secret/db  Stale  nothing: NotOptedIn`)
	s.plugin("stale", "-o", "name").golden(t, "stale as names", pluginFound, "configdependency.configdep.io/deployment.web")
	s.plugin("stale", "--older-than", "1h").golden(t, "stale for an hour", pluginDone, "Nothing runs with old content in namespace NAMESPACE (1 workload).")
	s.plugin("who", "secret/db").golden(t, "who", pluginDone, `
WORKLOAD  STATE  STALE PODS  KEYS  USED AS  RESTARTS
deployment/web  Stale  2/2  password  Env  no: ReloadOff`)
	s.plugin("pods", "deploy/web").golden(t, "pods", pluginDone, `
POD  CONTAINER  STATE  STARTED  REASON  SOURCES
web-POD  app  Stale  AGE  StartedBefore  Secret/db (StartedBefore)
web-POD  app  Stale  AGE  StartedBefore  Secret/db (StartedBefore)`)
	s.plugin("tree", "deployment.web").golden(t, "tree", pluginDone, `
deployment/web  Stale
└─ Secret/db  (2 stale pods; restarts nothing: ReloadOff)
  └─ Env, container app, variable SECRET, keys password`)
	s.plugin("graph").golden(t, "graph", pluginDone, `
graph LR
  n0["deployment/web: Stale"]:::stale
  n1["Secret/db"]:::source
  n0 -->|Env, stale| n1
  classDef source fill:#dde8f8
  classDef stale fill:#f8c8c8`)
	for _, format := range []string{"svg", "html"} {
		if r := s.plugin("graph", "-o", format, "--uses", "secret/db"); r.code != pluginDone || !strings.Contains(r.out, "Users of secret/db in namespace "+s.namespace) || !strings.Contains(r.out, "<title>deployment/web, Stale</title>") {
			t.Errorf("graph -o %s: %+v", format, r)
		}
	}
	s.plugin("impact", "secret/db", "--key", "user").golden(t, "impact of a key that nothing reads", pluginDone, `
WORKLOAD  RESTARTS  PODS  WHY
deployment/web  no  2  it reads only password
A change of Secret/db (user) would restart 0 workloads with 0 pods.`)
	s.plugin("plan").golden(t, "plan", pluginDone, "No restart is due in namespace NAMESPACE (1 workload).")
	s.plugin("plan", "secret/db").golden(t, "plan of a change", pluginDone, "A change of Secret/db would restart nothing in namespace NAMESPACE (1 workload).")
	s.plugin("wait", "deploy/web").golden(t, "wait for what will not come", pluginFound, `
deployment/web: Stale (NotOptedIn), 0 of 2 pods are current
error: this will not get there by itself:
deployment/web is Stale (NotOptedIn): 2 of 2 pods run with old content of Secret/db, which changed at TIME: web-POD and web-POD. Automatic restarts are off. Create a Reload to restart the workload.`)

	s.plugin("reload", "--uses", "secret/db", "--dry-run=server").golden(t, "reload as a dry run", pluginDone, "deployment/web: Dry run: the pods of Deployment web would be replaced.")
	if r := s.plugin("reload", "--uses", "secret/db", "--stale", "--wait", "--reason", "rotated"); r.code != pluginDone || !strings.Contains(r.out, "InSync (ContentApplied), 2 of 2 pods are current") {
		t.Errorf("reload: %+v", r)
	}
	s.plugin("stale").golden(t, "after the reload", pluginDone, "Nothing runs with old content in namespace NAMESPACE (1 workload).")
	if r := s.plugin("why", "deploy/web"); r.code != pluginDone || !strings.Contains(r.out, `requested: "rotated"`) || !strings.Contains(r.out, "configdep, by a Reload") {
		t.Errorf("why: %+v", r)
	}
}

// A pipeline that has written a Secret waits for the pods that read it, and for none less.
func TestPlugin_Wait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "0")
	s.create(owned("web"))
	s.view("deployment.web", applied)
	if r := s.plugin("plan", "secret/db"); r.code != pluginDone || !strings.Contains(r.out, "deployment/web") || !strings.HasPrefix(r.errOut, "0 in progress, 0 failed, 1 planned, 0 on hold") {
		t.Errorf("plan of a change: %+v", r)
	}
	for _, value := range []string{"1", "2", "3"} {
		s.write(db, "password", value)
		if r := s.plugin("wait", "--after", "secret/db"); r.code != pluginDone {
			t.Fatalf("wait: %+v", r)
		}
		o, err := s.api().Get(t.Context(), "deployment.web", metav1.GetOptions{})
		s.must(err)
		if err := errors.Join(applied(o), restartedFor(string(db))(o)); err != nil {
			t.Errorf("after the wait for %s: %v", value, err)
		}
	}
	s.write(db, "password", "4")
	if r := s.plugin("wait", "--timeout", "1ns", "deploy/web"); r.code != pluginTimeout {
		t.Errorf("without time: %+v", r)
	}
	if r := s.plugin("wait", "--uses", "secret/absent"); r.code != 1 || !strings.Contains(r.errOut, "no workload is selected") {
		t.Errorf("for nothing: %+v", r)
	}
}

// The example of a hook has the rights that its command needs, and no others. It waits for all pods, and fails if they will not have the content.
func TestPlugin_Hook(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "0")
	s.create(owned("web"))
	s.view("deployment.web", applied)
	const file = "../../artifacts/argo-cd/wait.yaml"
	kubectl(t, "apply", "-n", s.namespace, "-f", file)
	job, err := kube.BatchV1().Jobs(s.namespace).Get(t.Context(), "configdep-wait", metav1.GetOptions{})
	s.must(err)
	account := job.Spec.Template.Spec.ServiceAccountName
	as, err := kube.CoreV1().ServiceAccounts(s.namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.must(err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	s.must(clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "pod",
		Contexts:       map[string]*clientcmdapi.Context{"pod": {Cluster: "pod", AuthInfo: "pod", Namespace: s.namespace}},
		Clusters:       map[string]*clientcmdapi.Cluster{"pod": {Server: cluster.RESTConfig().Host, CertificateAuthorityData: cluster.RESTConfig().CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"pod": {Token: as.Status.Token}},
	}, kubeconfig))
	inPod := func(args ...string) ran {
		t.Helper()
		return s.pluginOf(append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	}
	hook := job.Spec.Template.Spec.Containers[0].Args
	await.Until(t, "the rights are known everywhere", func(context.Context) error {
		if r := inPod(hook...); r.code != pluginDone {
			return errors.New(r.out + r.errOut)
		}
		return nil
	})

	s.write(db, "password", "1")
	if r := inPod(hook...); r.code != pluginDone || !strings.HasSuffix(r.out, "deployment/web: InSync (ContentApplied), 1 of 1 pods are current\n") {
		t.Errorf("hook: %+v", r)
	}
	o, err := s.api().Get(t.Context(), "deployment.web", metav1.GetOptions{})
	s.must(err)
	if err := errors.Join(applied(o), restartedFor(string(db))(o)); err != nil {
		t.Errorf("after the hook: %v", err)
	}
	for _, allowed := range [][]string{{"stale"}, {"who", "secret/db"}, {"tree", "deploy/web"}, {"missing"}} {
		if r := inPod(allowed...); r.code != pluginDone {
			t.Errorf("%v: %+v, want it to be allowed", allowed, r)
		}
	}
	for _, refused := range [][]string{{"wait", "--after", "secret/other"}, {"pods", "deploy/web"}, {"reload", "deploy/web"}, {"stale", "-A"}} {
		if r := inPod(refused...); r.code != pluginForbidden {
			t.Errorf("%v: %+v, want it to be refused", refused, r)
		}
	}
	s.edit("web", func(d *appsv1.Deployment) { delete(d.Annotations, "configdep.io/reload") })
	s.view("deployment.web", func(o *v1alpha1.ConfigDependency) error {
		if o.Spec.Reload.Mode != v1alpha1.ReloadOff {
			return fmt.Errorf("mode = %s", o.Spec.Reload.Mode)
		}
		return nil
	})
	awaitAge(t, s.namespace, "web")
	s.write(db, "password", "2")
	if r := inPod(hook...); r.code != pluginFound || !strings.Contains(r.errOut, "deployment/web is Stale (NotOptedIn)") {
		t.Errorf("hook for pods that are not restarted: %+v", r)
	}
	s.must(kube.RbacV1().RoleBindings(s.namespace).Delete(t.Context(), account, metav1.DeleteOptions{}))
	await.Until(t, "the lack of rights is known everywhere", func(context.Context) error {
		r, want := inPod(hook...), `secrets "db" is forbidden: User "system:serviceaccount:`+s.namespace+`:configdep-wait" cannot get resource "secrets"`
		if r.code != pluginForbidden || !strings.Contains(r.errOut, want) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// The plugins of k9s call commands with what k9s knows of the selected line, and its view has the columns of kubectl.
func TestPlugin_K9s(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "0")
	s.create(deployment("web", envSecretKey("db", "password")))
	s.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	parse := func(file string, into any) {
		t.Helper()
		content, err := os.ReadFile("../../artifacts/k9s/" + file)
		s.must(err)
		s.must(yaml.UnmarshalStrict(content, into)) // k9s ignores a file with other fields
	}
	var plugins struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
			Confirm, Dangerous, Background bool
		}
	}
	parse("plugins.yaml", &plugins)
	tests := map[string]struct{ object, prints string }{
		"deployments": {"web", "deployment/web is InSync"}, "statefulsets": {"web", `"statefulset.web" not found`}, "daemonsets": {"web", `"daemonset.web" not found`},
		"secrets": {"db", "deployment/web"}, "configmaps": {"db", "ConfigMap/db"}, "configdependencies": {"deployment.web", "There is nothing to restart"},
	}
	for name, p := range plugins.Plugins {
		if !strings.HasPrefix(p.ShortCut, "Shift-") || p.Description == "" || p.Command != "bash" || len(p.Args) != 2 || len(p.Scopes) == 0 {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		for _, resource := range p.Scopes {
			test := tests[resource]
			line := strings.NewReplacer("$RESOURCE_NAME", resource, "$NAMESPACE", s.namespace, "$NAME", test.object, "$CONTEXT", "controlplane", `"`, "").Replace(p.Args[1])
			command, found := strings.CutPrefix(strings.TrimSuffix(line, " |& less -S"), "kubectl configdep ")
			r := s.pluginOf(append([]string{"--kubeconfig=" + cluster.Kubeconfig()}, strings.Fields(command)...)...)
			if !found || test.prints == "" || !strings.Contains(r.out+r.errOut, test.prints) {
				t.Errorf("%s: %s: %+v, want %q", name, line, r, test.prints)
			}
			delete(tests, resource)
		}
	}
	if len(tests) > 0 {
		t.Errorf("no plugin for %v", tests)
	}

	var views struct {
		Views map[string]struct {
			SortColumn string
			Columns    []string
		}
	}
	parse("views.yaml", &views)
	header, _, _ := strings.Cut(kubectl(t, "get", "configdependencies", "-A"), "\n")
	want := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(header), -1)
	view := views.Views["configdep.io/v1alpha1/configdependencies"]
	if diff := cmp.Diff(want, view.Columns); diff != "" || len(views.Views) != 1 || view.SortColumn != "STATE:asc" {
		t.Errorf("%+v; columns (-kubectl +k9s):\n%s", views, diff)
	}
}

// A mistake in annotations blocks automatic restarts, and neither a Reload nor the wait for it.
func TestPlugin_ReloadOfAWorkloadThatIsBlocked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	d := deployment("web", envSecretKey("db", "password"))
	d.Annotations = pairs("configdep.io/relaod", "auto")
	s.create(d)
	s.view("deployment.web", is(v1alpha1.StateBlocked, "InvalidAnnotation"))
	if r := s.plugin("reload", "deploy/web", "--wait"); r.code != pluginDone || !strings.Contains(r.out, "2 of 2 pods are current") {
		t.Errorf("reload: %+v", r)
	}
}

// What a user lacks the right for is said, and has an exit code of its own.
func TestPlugin_Rights(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	s.create(owned("web"))
	s.view("deployment.web", applied)
	if r := s.plugin("stale", "--as=nobody"); r.code != pluginForbidden || !strings.Contains(r.errOut, "nobody") {
		t.Errorf("without any right: %+v", r)
	}
	viewer := "viewer-of-" + s.namespace
	create(t, kube.RbacV1().RoleBindings(s.namespace).Create, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer}},
	})
	await.Until(t, "the right to view is known everywhere", func(context.Context) error {
		if r := s.plugin("stale", "--as="+viewer); r.code != pluginDone {
			return errors.New(r.errOut)
		}
		return nil
	})
	if r := s.plugin("stale", "-A", "--as="+viewer); r.code != pluginForbidden {
		t.Errorf("another namespace: %+v", r)
	}
	if r := s.plugin("reload", "deploy/web", "--as="+viewer); r.code != pluginForbidden {
		t.Errorf("reload: %+v", r)
	}
	// The role view may not read Secrets.
	if r := s.plugin("report", "--as="+viewer); r.code != pluginPartly || !strings.Contains(r.out, "Not read, because you may not list them: secrets") {
		t.Errorf("report: %+v", r)
	}
	file := filepath.Join(t.TempDir(), "db.yaml")
	s.must(os.WriteFile(file, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: x}\n"), 0o600))
	if r := s.plugin("impact", "-f", file, "--as="+viewer); r.code != pluginDone || !strings.Contains(r.errOut, "each key in the file counts as changed") || !strings.Contains(r.out, "(password)") {
		t.Errorf("impact: %+v", r)
	}
	if r := s.plugin("impact", "-f", file); r.code != pluginDone || !strings.Contains(r.errOut, "Secret/db in namespace "+s.namespace+" is as in the file") {
		t.Errorf("impact of nothing, as one who may read: %+v", r)
	}
}

// report finds without an installation what a server finds, and prints no content.
func TestPlugin_Report(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "mine-before")
	s.write("ConfigMap/lonely", "a", "b")
	s.create(deployment("web", envSecretKey("db", "password")))
	s.create(deployment("broken", envSecretKey("absent", "password")))
	s.must(await.NextSecond(t.Context()))
	s.write(db, "password", "mine-after")
	r := s.plugin("report", "-o", "json")
	var got struct{ PossiblyStale, Missing, Unused []struct{ Name, Text string } }
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != pluginFound {
		t.Fatalf("report: %v, %+v", err, r)
	}
	if len(got.PossiblyStale) != 1 || got.PossiblyStale[0].Name != "deployment/web" || len(got.Missing) != 1 || got.Missing[0].Name != "deployment/broken" ||
		len(got.Unused) != 1 || got.Unused[0].Name != "ConfigMap/lonely" {
		t.Errorf("report: %s", r.out)
	}
	for _, format := range []string{"table", "markdown", "json"} {
		if r := s.plugin("report", "-o", format); strings.Contains(r.out+r.errOut, "mine-") {
			t.Errorf("the report has content: %s", r.out)
		}
	}
}
