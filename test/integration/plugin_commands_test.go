// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/plugin"
	"github.com/configdep/configdep/test/await"
)

// allow gives a new user rights in the namespace: to get, list and watch resources, and ConfigDependencies.
func (s *shop) allow(resources ...string) (user string) {
	s.Helper()
	user = "reader-of-" + s.namespace
	read := func(group string, of ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: of, Verbs: []string{"get", "list", "watch"}}
	}
	create(s.T, kube.RbacV1().Roles(s.namespace).Create, &rbacv1.Role{ObjectMeta: metadata("reader"), Rules: []rbacv1.PolicyRule{
		read(v1alpha1.SchemeGroupVersion.Group, "configdependencies", "configdependencies/pods"), read("", resources...), read("apps", resources...),
	}})
	create(s.T, kube.RbacV1().RoleBindings(s.namespace).Create, &rbacv1.RoleBinding{
		ObjectMeta: metadata("reader"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	await.Until(s.T, "the rights of the user are known everywhere", func(context.Context) error {
		if r := s.plugin("stale", "--as="+user); r.code != pluginDone {
			return errors.New(r.errOut)
		}
		return nil
	})
	return user
}

// The last restarts of each kind that has rollouts are known.
func TestPlugin_WhyOfEveryKind(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		name := strings.ToLower(kind)
		createWorkload(t, s.namespace, kind, pairs("configdep.io/reload", "auto"), envSecretKey("db", "password"))
		s.view(name+".web", applied)
	}
	s.write(db, "password", "y")
	for _, kind := range []string{"deploy", "sts", "ds"} {
		if r := s.plugin("wait", kind+"/web"); r.code != pluginDone {
			t.Errorf("wait: %+v", r)
		}
		r := s.plugin("why", kind+"/web")
		for _, want := range []string{"is InSync (ContentApplied)", "mode Auto, strategy Annotation", "because of Secret/db", "configdep, because content changed", "Current"} {
			if r.code != pluginDone || !strings.Contains(strings.ToLower(r.out), strings.ToLower(want)) {
				t.Errorf("why %s lacks %q: %+v", kind, want, r)
			}
		}
	}
}

// Before a Secret is revoked, someone asks which pods still have it.
func TestPlugin_Who(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	s.write("ConfigMap/unused", "a", "b")
	s.create(deployment("web", envSecretKey("db", "password")))
	s.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	awaitAge(t, s.namespace, "web")
	s.plugin("who", "secret/db", "--pods").golden(t, "no pod is behind", pluginDone, "All containers that read Secret/db in namespace NAMESPACE have its current content.")
	s.write(db, "password", "y")
	s.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"))
	s.plugin("who", "secret/db", "--pods").golden(t, "two pods are behind", pluginFound, `
WORKLOAD  POD  CONTAINER  STATE  STARTED  REASON
deployment/web  web-POD  app  Stale  AGE  StartedBefore
deployment/web  web-POD  app  Stale  AGE  StartedBefore`)
	s.plugin("who", "cm/unused").golden(t, "it is used by none", pluginDone, "No workload in namespace NAMESPACE names ConfigMap/unused.")
	for _, command := range []string{"who", "impact"} {
		s.plugin(command, "secret/bd").golden(t, command+" with a typo", 1, "error: there is no Secret/bd in namespace NAMESPACE, and no workload names it")
	}
	s.plugin("impact", "secret/db", "-o", "name").golden(t, "nothing would restart, as names", pluginDone, "")
	s.plugin("impact", "secret/db", "-o", "yaml").golden(t, "as data", pluginDone, `
- namespace: NAMESPACE
  pods: 2
  restarts: false
  source: Secret/db
  why: ReloadOff
  workload: deployment/web`)
	s.plugin("unused").golden(t, "unused", pluginDone, `
SOURCE  USED  AGE  WHY
ConfigMap/unused  no  AGE  nothing names it
Programs that read the API themselves are not seen.`)
	s.plugin("unused", "-o", "name").golden(t, "unused as names", pluginDone, "ConfigMap/unused")
	s.plugin("unused", "-o", "toml").golden(t, "in another form", 1, "error: --output=toml: want json, yaml or name")
}

// Without the rights for all of a command, it says what it could not read.
func TestPlugin_FewRights(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	s.write("Secret/lonely", "a", "b")
	s.create(owned("web"))
	s.view("deployment.web", applied)
	as := "--as=" + s.allow("secrets", "configmaps", "deployments")
	if r := s.plugin("report", as); r.code != pluginForbidden || !strings.Contains(r.errOut, "you may not list pods") {
		t.Errorf("report: %+v", r)
	}
	s.plugin("unused", as).golden(t, "unused", pluginDone, `
SOURCE  USED  AGE  WHY
Secret/lonely  unknown  AGE  you may not list serviceaccounts, ingresses
Programs that read the API themselves are not seen.`)
	r := s.plugin("why", "deploy/web", as)
	for _, want := range []string{"You may not list what tells of earlier rollouts", "You may not list Events"} {
		if r.code != pluginDone || !strings.Contains(r.errOut, want) {
			t.Errorf("why: %+v", r)
		}
	}
}

// Without credentials, a user is told who the API server takes them for.
func TestPlugin_WithoutCredentials(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	text, err := os.ReadFile(cluster.Kubeconfig())
	s.must(err)
	var config struct{ Clusters []any }
	s.must(yaml.Unmarshal(text, &config))
	of := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "it", "clusters": config.Clusters[:1],
		"contexts": []any{map[string]any{"name": "it", "context": map[string]any{"cluster": config.Clusters[0].(map[string]any)["name"]}}},
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	s.must(os.WriteFile(file, asJSON(t, of), 0o600))
	for _, command := range [][]string{{"stale"}, {"why", "deploy/web"}, {"who", "secret/db"}, {"wait"}, {"reload", "--stale"}, {"report"}, {"missing"}, {"unused"}, {"graph"}} {
		r := s.plugin(append(command, "--kubeconfig="+file)...)
		if r.code != pluginForbidden || !strings.Contains(r.errOut, "system:anonymous") && !strings.Contains(r.errOut, "Unauthorized") && !strings.Contains(r.errOut, "you may list neither") {
			t.Errorf("%v: %+v", command, r)
		}
	}
}

// A change of what is not there yet restarts what waits for it.
func TestPlugin_ImpactOfAMissingSource(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.create(owned("web"))
	s.view("deployment.web", is(v1alpha1.StateBlocked, "SourceMissing"))
	file := filepath.Join(t.TempDir(), "db.yaml")
	s.must(os.WriteFile(file, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: x}\n"), 0o600))
	r := s.plugin("impact", "-f", file, "-o", "json")
	var got []struct {
		Workload, Why string
		Restarts      bool
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != pluginDone || len(got) != 1 || got[0].Workload != "deployment/web" || !got[0].Restarts {
		t.Errorf("impact: %v, %+v", err, r)
	}
	s.plugin("missing").golden(t, "missing", pluginFound, `
WORKLOAD  MISSING
deployment/web  Secret db is missing: new pods cannot start.`)
}

// interrupting interrupts a command once it has written something.
type interrupting struct {
	bytes.Buffer

	interrupt context.CancelFunc
}

func (w *interrupting) Write(p []byte) (int, error) {
	w.interrupt()
	return w.Buffer.Write(p)
}

// Ctrl-C ends the wait, and says what goes on.
func TestPlugin_Interrupted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	s.create(owned("web"))
	s.create(owned("other"))
	s.view("deployment.web", applied)
	s.view("deployment.other", applied)
	s.edit("web", func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = pairs("no-node", "has-this") }) // so that its rollout does not end
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"wait", "deploy/web"}, "interrupted; restarts that have begun continue:\ndeployment/web is "},
		{[]string{"reload", "deploy/web", "--wait"}, "interrupted; restarts that have begun continue"},
		{[]string{"reload", "deploy/web", "deploy/other"}, "interrupted: 1 of 2 were asked to restart, which goes on"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out, errOut := interrupting{interrupt: cancel}, bytes.Buffer{}
		code := plugin.Run(ctx, append([]string{"--kubeconfig=" + cluster.Kubeconfig(), "-n", s.namespace}, c.args...),
			genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
		cancel()
		if code != pluginInterrupted || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%v: code %d, %s%s", c.args, code, out.String(), errOut.String())
		}
	}
}

// Completion offers what there is.
func TestPlugin_Completion(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "password", "x")
	s.create(deployment("web", envSecretKey("db", "password")))
	s.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"))
	for want, args := range map[string][]string{
		"deployment/web": {"why", ""}, "deploy/web": {"why", "deploy/"}, "secret/db": {"who", ""}, "secrets/db": {"wait", "--after", "secrets/"},
		s.namespace: {"stale", "--namespace", ""}, "yaml": {"unused", "-o", ""},
	} {
		if r := s.plugin(append([]string{"__complete"}, args...)...); r.code != pluginDone || !strings.Contains("\n"+r.out, "\n"+want+"\n") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := s.plugin("__complete", "why", "deploy/web", ""); strings.Contains(r.out, "web") {
		t.Errorf("a second argument: %+v", r)
	}
}
