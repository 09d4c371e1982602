// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/agent/restarter"
	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
)

// The API server takes the parts of manifests in docs/agent.md, and the agent takes the flags in them.
func TestAgent_Document(t *testing.T) {
	cluster.Needs(t, "1.36", "rules that restart all containers")
	t.Parallel()
	text, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newAgentShop(t)
	p.serviceAccount("default")
	podSpec := regexp.MustCompile("(?m)^(initContainers|containers):$")
	pods, roles := 0, 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		part := block[1]
		switch {
		case podSpec.MatchString(part):
			pods++
			var spec corev1.PodSpec
			if err := yaml.UnmarshalStrict([]byte(part), &spec); err != nil {
				t.Errorf("%v in:\n%s", err, part)
				continue
			}
			if len(spec.Containers) == 0 {
				spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
			}
			p.tryFlags(spec)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec}
			made, err := kube.CoreV1().Pods(p.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Errorf("%v in:\n%s", err, part)
				continue
			}
			for _, c := range made.Spec.InitContainers {
				if strings.Contains(part, "restartPolicyRules") && len(c.RestartPolicyRules) == 0 {
					t.Errorf("the API server drops restartPolicyRules of:\n%s", part)
				}
			}
		case strings.HasPrefix(part, "rules:"), strings.HasPrefix(part, "- apiGroups:"):
			roles++
			var role rbacv1.Role
			if strings.HasPrefix(part, "-") {
				part = "rules:\n" + part
			}
			if err := yaml.UnmarshalStrict([]byte(part), &role); err != nil || len(role.Rules) != 2 {
				t.Errorf("%v in:\n%s", err, part)
				continue
			}
			role.Name = "x"
			if _, err := kube.RbacV1().Roles(p.namespace).Create(t.Context(), &role, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("%v in:\n%s", err, part)
			}
		case strings.HasPrefix(part, "env:"):
			var c corev1.Container
			if err := yaml.UnmarshalStrict([]byte(part), &c); err != nil || len(c.Env) != 2 {
				t.Errorf("%v in:\n%s", err, part)
			}
		case strings.HasPrefix(part, "args:"):
			c := corev1.Container{Image: "example.com/configdep-agent:1"}
			if err := yaml.UnmarshalStrict([]byte(part), &c); err != nil {
				t.Errorf("%v in:\n%s", err, part)
				continue
			}
			c.Args = append(c.Args, "--configmap=settings")
			p.tryFlags(corev1.PodSpec{Containers: []corev1.Container{c}})
		case strings.HasPrefix(part, "metadata:"): // TestServer runs it
			var d appsv1.Deployment
			if err := yaml.UnmarshalStrict([]byte(part), &d); err != nil || d.Annotations[policy.StrategyAnnotation] != record.Agent.Name() ||
				d.Spec.Template.Labels[status.Label] != status.LabelValue {
				t.Errorf("%v in:\n%s", err, part)
			}
		default:
			t.Errorf("a part that is not tried:\n%s", part)
		}
	}
	if pods != 3 || roles != 2 {
		t.Errorf("%d parts of pods and %d of Roles were tried", pods, roles)
	}
}

// The complete manifests of all modes are taken as they are, also where pods must be restricted. Each agent may read what its flags name, and
// the pods of restarters have no token.
func TestAgent_Examples(t *testing.T) {
	t.Parallel()
	const folder = "../../artifacts/examples/agent"
	for _, mode := range []string{"sidecar", "parent", "restarter"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode == "restarter" {
				cluster.Needs(t, "1.36", "rules that restart all containers")
			}
			p := newAgentShop(t)
			_, err := kube.CoreV1().Namespaces().Patch(t.Context(), p.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
			p.must(err)
			_, err = cluster.Kubectl(t.Context(), "apply", "-n", p.namespace, "-k", path.Join(folder, mode))
			p.must(err)
			for name, pods := range map[string]int{"nginx": 2, "prometheus": 1, "postgresql": 1} {
				var found *corev1.PodList
				await.Until(t, "the pods of "+name+" run", func(ctx context.Context) (err error) {
					found, err = kube.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name, FieldSelector: "status.phase=Running"})
					if err == nil && len(found.Items) != pods {
						err = fmt.Errorf("%d do", len(found.Items))
					}
					return err
				})
				pod := &found.Items[0]
				p.tryFlags(pod.Spec)
				if mode == "restarter" {
					p.restarts(pod, name)
				} else {
					p.reads(pod, name)
				}
			}
		})
	}
	for _, pattern := range []string{"*", "*/*.yaml"} {
		files, err := filepath.Glob(path.Join(folder, pattern))
		if want := map[string]int{"*": 3, "*/*.yaml": 3 * 4}[pattern]; err != nil || len(files) != want {
			t.Errorf("%d files are tried, and there are %v (%v)", want, files, err)
		}
	}
}

// reads checks that the agent in a pod of an example may read the ConfigMap, and report.
func (p *agentShop) reads(pod *corev1.Pod, name string) {
	p.Helper()
	if pod.Labels[status.Label] != status.LabelValue {
		p.Errorf("the server does not watch the pods of %s, which have the labels %v", name, pod.Labels)
	}
	for verb, object := range map[string]string{"list": "configmaps/" + name, "watch": "configmaps/" + name, "patch": "pods"} {
		out, err := cluster.Kubectl(p.Context(), "auth", "can-i", verb, object, "-n", p.namespace, "--as=system:serviceaccount:"+p.namespace+":"+pod.Spec.ServiceAccountName)
		if err != nil {
			p.Errorf("%s may not %s %s: %v, %s", name, verb, object, err, out)
		}
	}
}

// restarts checks that a pod of an example has a restarter, no token, and the ConfigMap as a volume.
func (p *agentShop) restarts(pod *corev1.Pod, name string) {
	p.Helper()
	if rules := pod.Spec.InitContainers[0].RestartPolicyRules; len(rules) != 1 || rules[0].Action != corev1.ContainerRestartRuleActionRestartAllContainers {
		p.Errorf("the restarter of %s has the rules %+v", name, rules)
	}
	mounted := false
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil { // in which the API server mounts tokens
			p.Errorf("%s has the volume %+v", name, v)
		}
		mounted = mounted || v.ConfigMap != nil && v.ConfigMap.Name == name
	}
	if !mounted {
		p.Errorf("%s has no volume of its ConfigMap", name)
	}
}

// tryFlags runs the agent with the flags of containers, as far as it takes them: in a directory that it cannot make, it ends.
func (p *agentShop) tryFlags(spec corev1.PodSpec) {
	p.Helper()
	tried := 0
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		args := c.Args
		if len(c.Command) != 0 && path.Base(c.Command[0]) == "configdep-agent" {
			args = c.Command[1:]
		} else if !strings.Contains(c.Image, "/configdep-agent:") {
			continue
		}
		tried++
		if args[0] == "restarter" { // which TestRestarter runs
			o, flags := restarter.NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
			o.AddFlags(flags)
			err := flags.Parse(args[1:])
			if err == nil {
				_, err = o.Config()
			}
			if err != nil || flags.NArg() != 0 {
				p.Errorf("%v: %v", args, err)
			}
			continue
		}
		all := append([]string{"--dir=/proc/none", "--listen=", "--namespace=x"}, p.connect...)
		for i, arg := range args {
			if arg == "--" {
				all = append(all, args[i:]...)
				break
			}
			if !strings.HasPrefix(arg, "--dir=") {
				all = append(all, arg)
			}
		}
		run := cluster.Command(p.Context(), agent, all...)
		run.Env = append(run.Environ(), "POD_NAME=web", "POD_UID=x")
		out, err := run.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "/proc/none") {
			p.Errorf("%v: %v: %s", all, err, out)
		}
	}
	if tried == 0 {
		p.Errorf("no container runs the agent: %+v", spec)
	}
}
