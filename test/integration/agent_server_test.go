// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// The server shows whether the agents of all pods have applied what their sources have now, and restarts nothing.
func TestAgent_Server(t *testing.T) {
	t.Parallel()
	p := newAgentShop(t, may("configmaps", "site"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}})
	p.write("ConfigMap/site", "page", "1")
	p.write("ConfigMap/settings", "mode", "1")
	web := deployment("web", envFromConfigMap("settings"))
	web.Annotations = map[string]string{"configdep.io/reload": "auto", "configdep.io/strategy": "agent"}
	web.Spec.Template.Labels["configdep.io/agent"] = "true"
	made := p.create(web)
	api := configdep.ConfigDependencies(p.namespace)
	shows := func(state v1alpha1.State, reason, message string) *v1alpha1.ConfigDependency {
		t.Helper()
		return p.view("deployment.web", is(state, reason), func(o *v1alpha1.ConfigDependency) error {
			if !strings.Contains(o.Status.Message, message) {
				return errors.New(o.Status.Message)
			}
			return nil
		})
	}
	shows("Pending", "AgentsSilent", "0 of 2 pods have applied the current content.")
	var pods *corev1.PodList
	await.Until(t, "there are two pods", func(ctx context.Context) (err error) {
		if pods, err = kube.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"}); err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
	first, second := pods.Items[0].Name, pods.Items[1].Name
	agents := map[string]*running{}
	start := func(pod *corev1.Pod) {
		t.Helper()
		own := *p
		own.dir = filepath.Join(t.TempDir(), "files")
		own.environment = append(os.Environ(), "POD_NAME="+pod.Name, "POD_UID="+string(pod.UID))
		agents[pod.Name] = own.agent("--configmap=site", "--report", `--check-command=["sh", "-c", "! grep -q BAD {dir}/page"]`)
	}
	for i := range pods.Items {
		start(&pods.Items[i])
		if pods.Items[i].Name == first {
			shows("Pending", "AgentsSilent", "1 of 2 pods has applied the current content. Pod "+second+" has reported nothing")
		}
	}
	const all = "The agents of all 2 pods have applied the current content."
	found := shows("InSync", "ContentApplied", all)
	var sources []string
	for _, s := range found.Spec.Sources {
		sources = append(sources, fmt.Sprintf("%s/%s %v %s %s", s.Kind, s.Name, s.TriggersReload, s.Reason, s.Usages[0].Type))
	}
	if want := []string{"ConfigMap/settings false NotByAgents EnvFrom", "ConfigMap/site false AppliedByAgent Agent"}; !slices.Equal(sources, want) {
		t.Errorf("sources %q, want %q", sources, want)
	}
	by, err := api.List(t.Context(), metav1.ListOptions{FieldSelector: "source=ConfigMap/site"})
	p.must(err)
	if len(by.Items) != 1 {
		t.Errorf("%d workloads use the ConfigMap", len(by.Items))
	}

	// A watch sees that an agent is not done, and then that it is. If all were done at once, it might see no change.
	version := by.ResourceVersion
	watched := func(reason string) {
		t.Helper()
		await.Until(t, "a watch shows "+reason, func(ctx context.Context) error {
			w, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				return err
			}
			defer w.Stop()
			for e := range w.ResultChan() {
				o, is := e.Object.(*v1alpha1.ConfigDependency)
				if !is {
					version = "" // the next watch begins with what there is
					return apierrors.FromObject(e.Object)
				}
				if version = o.ResourceVersion; o.Status.Reason == reason {
					return nil
				}
			}
			return fmt.Errorf("the watch has ended at version %s", version)
		})
	}
	agents[second].stop()
	p.write("ConfigMap/site", "page", "2")
	watched("AgentsApplying")
	start(&pods.Items[1])
	watched("ContentApplied")
	p.write("ConfigMap/site", "page", "BAD")
	shows("Failed", "AgentFailed", "cannot apply the current content: check: sh: exit code 1. 0 of 2 pods have applied the current content.")
	p.write("ConfigMap/site", "page", "3")
	shows("InSync", "ContentApplied", all)
	agents[second].stop()
	p.write("ConfigMap/site", "page", "4")
	shows("Pending", "AgentsApplying", "1 of 2 pods has applied the current content. Pod "+second+" has yet to report that.")

	_, err = kube.AppsV1().Deployments(p.namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"note":"x"}}}}}`), metav1.PatchOptions{})
	p.must(err)
	shows("Pending", "AgentsSilent", "0 of 2 pods have applied the current content.")

	// Nothing has restarted the pods, also for what they read themselves.
	p.write("ConfigMap/settings", "mode", "2")
	shows("Blocked", "NotByAgents", "ConfigMap/settings has changed.")
	now := p.deployment("web")
	made.Spec.Template.Annotations = map[string]string{"note": "x"}
	if diff := cmp.Diff(made.Spec.Template, now.Spec.Template); diff != "" {
		t.Errorf("the pod template has changed (-before +now):\n%s", diff)
	}
}
