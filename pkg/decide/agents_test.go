// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// agents is a world whose Deployment has the strategy agent, and pods with agents.
type agents struct{ *world }

// newAgents returns one with two pods that have reported nothing. Their agents apply ConfigMap site and Secret tls, and a container reads
// the ConfigMap settings itself.
func newAgents(t *testing.T) *agents {
	t.Helper()
	a := &agents{newWorld(t, podOf(envFrom(dependency.ConfigMap, "settings")), configMap("settings", "a", "1"), configMap("site", "a", "1"), secret("tls", "a", "1"))}
	a.annotate(policy.StrategyAnnotation, "agent")
	a.scale(2)
	a.tick(time.Minute)
	if d := a.act(); d.Action != decide.WriteRecord {
		a.t.Fatalf("%+v", d)
	}
	a.tick(time.Minute)
	a.pod(pod1, "")
	a.pod(pod2, "")
	return a
}

// pod writes a pod of the Deployment, with the value of the annotation of its agent.
func (a *agents) pod(name, value string) {
	i := slices.IndexFunc(a.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		p := startedPod(name, &a.deployment.Spec.Template, a.now)
		p.Labels, p.OwnerReferences = maps.Clone(a.pods[0].Labels), a.pods[0].OwnerReferences
		i = len(a.pods)
		a.pods = append(a.pods, p)
	}
	p := a.pods[i].DeepCopy()
	metav1.SetMetaDataLabel(&p.ObjectMeta, status.Label, status.LabelValue)
	if value != "" {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, status.Annotation, value)
	}
	a.pods[i] = p
	a.set(p)
}

// report lets an agent report what it has applied.
func (a *agents) report(pod string, state status.State, message string, sources ...status.Source) {
	a.t.Helper()
	value, err := json.Marshal(status.Report{State: state, Message: message, Sources: sources})
	if err != nil {
		a.t.Fatal(err)
	}
	a.pod(pod, string(value))
}

// stored returns a source in its current state, as an agent reports it.
func (a *agents) stored(o ingesttest.Object) status.Source {
	kind := "ConfigMap"
	if _, is := o.(*corev1.Secret); is {
		kind = "Secret"
	}
	s := status.Source{Kind: kind, Namespace: namespace, Name: o.GetName()}
	if now := a.Stored(o); now != nil {
		s.UID, s.ResourceVersion = string(now.GetUID()), now.GetResourceVersion()
	}
	return s
}

// apply lets agents of pods apply and report the current content.
func (a *agents) apply(pods ...string) {
	a.t.Helper()
	for _, pod := range pods {
		a.report(pod, status.Applied, "", a.stored(configMap("site")), a.stored(secret("tls")))
	}
}

const (
	pod1, pod2 = "web-t1-1", "web-t1-2"

	allApplied  = "The agents of all 2 pods have applied the current content."
	notCompared = "The agents have applied what they have read. They name no ConfigMap and no Secret of this namespace, so it is not known whether that is the current content."
)

func (a *agents) expect(what string, state decide.State, reason, message string) {
	a.t.Helper()
	d := a.decide()
	if d.State != state || d.Reason != reason || d.Message != message || d.Action != decide.None {
		a.t.Errorf("%s: %s %s %q, action %q; want %s %s %q", what, d.State, d.Reason, d.Message, d.Action, state, reason, message)
	}
}

// The workload is in sync when the agents of all pods say that they have applied what is there now.
func TestAgent_InSyncWhenAllPodsAre(t *testing.T) {
	a := newAgents(t)
	const nothing = " reported nothing: the agent needs --report, and the right to patch its pod."
	a.expect("at first", decide.Pending, "AgentsSilent", "0 of 2 pods have applied the current content. Pods "+pod1+" and "+pod2+" have"+nothing)
	a.apply(pod1)
	a.expect("one", decide.Pending, "AgentsSilent", "1 of 2 pods has applied the current content. Pod "+pod2+" has"+nothing)
	a.apply(pod2)
	a.expect("both", decide.InSync, "ContentApplied", allApplied)

	behind := "0 of 2 pods have applied the current content. Pods " + pod1 + " and " + pod2 + " have yet to report that."
	a.set(configMap("site", "a", "2"))
	a.expect("a change", decide.Pending, "AgentsApplying", behind)
	a.report(pod1, status.Applying, "", a.stored(secret("tls")))
	a.expect("being applied", decide.Pending, "AgentsApplying", behind)
	a.apply(pod1)
	a.expect("one is ready", decide.Pending, "AgentsApplying", "1 of 2 pods has applied the current content. Pod "+pod2+" has yet to report that.")
	a.apply(pod2)
	a.expect("both again", decide.InSync, "ContentApplied", allApplied)

	a.set(secret("tls", "a", "3"))
	a.expect("a Secret", decide.Pending, "AgentsApplying", behind)
	a.apply(pod1, pod2)
	a.remove(dependency.ConfigMap, "site")
	a.expect("deleted", decide.Pending, "AgentsApplying", behind)
	a.apply(pod1, pod2)
	a.expect("without it", decide.InSync, "ContentApplied", allApplied)
	a.set(configMap("site", "a", "2"))
	a.expect("created again", decide.Pending, "AgentsApplying", behind)
	a.apply(pod1, pod2)
	a.remove(dependency.Secret, "tls")
	a.set(secret("tls", "a", "1"))
	a.expect("replaced", decide.Pending, "AgentsApplying", behind)
	a.apply(pod1, pod2)
	a.restart()
	a.expect("after a restart of the server", decide.InSync, "ContentApplied", allApplied)
}

// An agent may see a change before the server: its pod is up to date once the server has read the change, too. After a restore of etcd, what
// agents have reported may be newer than what there is, and may never have been in this history.
func TestAgent_ReportsANewerVersion(t *testing.T) {
	a := newAgents(t)
	site, behind := configMap("site", "a", "2"), "1 of 2 pods has applied the current content. Pod "+pod2+" has yet to report that."
	a.apply(pod1)
	come := a.Late(func() { a.set(site) })
	a.apply(pod2)
	a.expect("the server is late", decide.Pending, "AgentsApplying", behind)
	come()
	a.apply(pod1)
	a.expect("it has read the change", decide.InSync, "ContentApplied", allApplied)

	newer := a.stored(site)
	newer.ResourceVersion = strconv.FormatUint(dependency.ParseVersion(newer.ResourceVersion)+1000, 10)
	a.report(pod2, status.Applied, "", newer, a.stored(secret("tls")))
	a.expect("newer", decide.Pending, "AgentsApplying", behind)
	if d := a.decide(); !d.RecheckAt.IsZero() {
		t.Errorf("decision = %+v, want one that time alone does not change", d)
	}
	a.report(pod2, status.Applied, "", a.stored(site), status.Source{Kind: "Secret", Namespace: namespace, Name: "tls", UID: "other", ResourceVersion: "999999"})
	a.expect("another Secret", decide.Pending, "AgentsApplying", behind)
	a.apply(pod2)
	a.expect("it has reported again", decide.InSync, "ContentApplied", allApplied)
}

func TestAgent_Fails(t *testing.T) {
	a := newAgents(t)
	a.apply(pod1)
	a.report(pod2, status.Failed, "check: exit code 1")
	a.expect("failed", decide.Failed, "AgentFailed", "Pod "+pod2+" cannot apply the current content: check: exit code 1. 1 of 2 pods has applied the current content.")
	a.report(pod1, status.Failed, "reload:\nno answer\x00")
	a.expect("both failed", decide.Failed, "AgentFailed", "Pods "+pod1+" and "+pod2+" cannot apply the current content: reload: no answer . 0 of 2 pods have applied the current content.")
	a.pod(pod1, "?")
	a.expect("no report", decide.Failed, "AgentFailed",
		"Pods "+pod1+" and "+pod2+" cannot apply the current content: the annotation configdep.io/agent-status is not the JSON of a report. 0 of 2 pods have applied the current content.")
	a.apply(pod1)
	a.report(pod2, status.Incomplete, "ConfigMap shop/more is missing")
	a.expect("incomplete", decide.Blocked, "AgentIncomplete", "Pod "+pod2+" lacks required sources: ConfigMap shop/more is missing. 1 of 2 pods has applied the current content.")
}

// Pods without the label are known by their number alone, and others do not count.
func TestAgent_CountsPods(t *testing.T) {
	a := newAgents(t)
	a.apply(pod1, pod2)
	a.scale(3)
	a.expect("one without", decide.Pending, "AgentsSilent", "2 of 3 pods have applied the current content. One pod is without the label configdep.io/agent=true: nothing is known about pods without it.")
	a.scale(4)
	a.expect("two without", decide.Pending, "AgentsSilent", "2 of 4 pods have applied the current content. 2 are without the label configdep.io/agent=true: nothing is known about pods without it.")
	a.scale(2)
	a.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) })
	a.expect("one too many", decide.InSync, "ContentApplied", allApplied)
	a.stop(pod1)
	a.expect("one", decide.InSync, "ContentApplied", "The agent of the pod has applied the current content.")
	a.set(configMap("site", "a", "2"))
	a.expect("one that is behind", decide.Pending, "AgentsApplying", "0 of 1 pod has applied the current content. Pod "+pod2+" has yet to report that.")
	a.scale(0)
	a.expect("none", decide.InSync, "NoPods", "No pods run; new pods read the current content.")
}

// What containers read themselves is not applied by agents: that it has changed is said, and nothing is restarted.
func TestAgent_ContentThatContainersRead(t *testing.T) {
	a := newAgents(t)
	a.apply(pod1, pod2)
	a.set(configMap("settings", "a", "2"))
	a.expect("changed", decide.Blocked, "NotByAgents",
		"ConfigMap/settings has changed. The containers read it themselves, and with the strategy agent nothing restarts them. Create a Reload to restart the workload.")
	if d := a.decide(); !d.Stale {
		t.Error("it is not stale")
	}
	a.request()
	a.tick(time.Minute)
	a.rollOut()
	a.apply(a.pods[0].Name, a.pods[1].Name)
	a.tick(time.Minute)
	a.act()
	a.expect("restarted on request", decide.InSync, "ContentApplied", allApplied)
	a.annotate(policy.StrategyAnnotation, "")
	a.set(configMap("settings", "a", "3"))
	a.tick(time.Minute)
	if d := a.decide(); d.Action != decide.RollOut {
		t.Errorf("with the default strategy: %+v", d)
	}
}

// What pods say about sources of other namespaces is not compared with these: those who can write pods here would learn of them.
func TestAgent_OtherNamespaces(t *testing.T) {
	a := newAgents(t)
	for _, pod := range []string{pod1, pod2} {
		a.report(pod, status.Applied, "", status.Source{Kind: "Secret", Namespace: "kube-system", Name: "tls", ResourceVersion: "1"}, status.Source{Kind: "Pod", Namespace: namespace, Name: "x"},
			status.Source{Kind: "Secret", Namespace: namespace, Name: "No/Name"})
	}
	a.expect("applied", decide.InSync, "ContentApplied", notCompared)
	if got := a.evaluate().Agents.Sources; len(got) != 0 {
		t.Errorf("sources %v", got)
	}
}

// Agents name no versions of what they read from volumes.
func TestAgent_Volumes(t *testing.T) {
	a := newAgents(t)
	a.report(pod1, status.Applied, "")
	a.report(pod2, status.Applied, "")
	a.expect("applied", decide.InSync, "ContentApplied", notCompared)
	a.report(pod2, status.Applied, "", a.stored(secret("tls")))
	const none = " names no ConfigMap and no Secret of this namespace, so it is not known whether it has the current content."
	a.expect("one names a source", decide.InSync, "ContentApplied", "The agents of all 2 pods have applied what they have read. One pod"+none)
	a.set(secret("tls", "a", "2"))
	a.expect("a change", decide.Pending, "AgentsApplying", "1 of 2 pods has applied the current content. Pod "+pod2+" has yet to report that. One pod"+none)
	a.report(pod2, status.Applied, "", a.stored(secret("tls")))
	a.expect("applied again", decide.InSync, "ContentApplied", "The agents of all 2 pods have applied what they have read. One pod"+none)
	a.pod("web-t1-3", `{"state":"Applied"}`)
	a.expect("a third pod", decide.InSync, "ContentApplied", "The agents of all 3 pods have applied what they have read. 2 pods"+
		" name no ConfigMap and no Secret of this namespace, so it is not known whether they have the current content.")
	a.apply(pod1, pod2, "web-t1-3")
	a.expect("all name sources", decide.InSync, "ContentApplied", strings.Replace(allApplied, "2", "3", 1))
}

// A source that is not read may have changed; what agents say of it is believed.
func TestAgent_SourcesThatAreNotRead(t *testing.T) {
	for name, prepare := range map[string]func(*agents){
		"no Secrets":      func(a *agents) { a.withoutSecrets = true },
		"Secrets by type": func(a *agents) { a.unread = corev1.SecretTypeOpaque },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t)
			a.apply(pod1, pod2)
			prepare(a)
			a.restart()
			a.act()
			a.expect("applied", decide.InSync, "ContentApplied", allApplied)
		})
	}
}

// What is not seen of what containers read is said as well.
func TestAgent_NotSeen(t *testing.T) {
	a := newAgents(t)
	a.edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec = podOf(envFrom(dependency.Secret, "tls")) })
	a.withoutSecrets = true
	a.rollOut()
	a.restart()
	a.act()
	a.apply(a.pods[0].Name, a.pods[1].Name)
	a.expect("applied", decide.InSync, "ContentApplied", allApplied+" Changes of Secret/tls are not seen: configdep reads no Secrets (--read-secrets=false).")
}

// The sources that agents have applied are known, in order, with their state.
func TestAgent_Sources(t *testing.T) {
	a := newAgents(t)
	a.apply(pod1)
	a.report(pod2, status.Applied, "", a.stored(configMap("gone")), a.stored(configMap("site")))
	var got []string
	for _, s := range a.evaluate().Agents.Sources {
		got = append(got, fmt.Sprint(s.Kind, "/", s.Name, " ", s.Source != nil))
	}
	if diff := cmp.Diff([]string{"ConfigMap/gone false", "ConfigMap/site true", "Secret/tls true"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The number of sources, and the time to compare them, have limits whatever pods report.
func TestAgent_Limits(t *testing.T) {
	a := newAgents(t)
	const pods = 102
	for i := range pods {
		var sources []status.Source
		for j := range status.MaxSources {
			sources = append(sources, status.Source{Kind: "ConfigMap", Namespace: namespace, Name: fmt.Sprintf("c-%d-%d", i, j)})
		}
		a.report("web-t1-"+strconv.Itoa(1000+i), status.Applied, "", sources...)
	}
	e := a.evaluate()
	if n := len(e.Agents.Sources); n != dependency.MaxSources {
		t.Errorf("%d sources", n)
	}
	d := a.decide()
	if !strings.HasPrefix(d.Message, "100 of 104 pods have applied the current content. Pods web-t1-1100 and web-t1-1101 have yet to report that.") {
		t.Errorf("%+v", d)
	}
}

// The sources of pods that are not compared are not looked at, whatever pods report.
func TestAgent_LimitsWhatIsLookedAt(t *testing.T) {
	a := newAgents(t)
	const sources, compared = 400, 125
	for i := range compared + 1 {
		name := "all" // with other versions in each pod, but in the last pod, other sources
		if i == compared {
			name = "last"
		}
		var applied []status.Source
		for j := range sources {
			applied = append(applied, status.Source{Kind: "ConfigMap", Namespace: namespace, Name: fmt.Sprint(name, "-", j), ResourceVersion: strconv.Itoa(i + 1)})
		}
		a.report("web-t1-"+strconv.Itoa(1000+i), status.Applied, "", applied...)
	}
	if n := len(a.evaluate().Agents.Sources); n != sources {
		t.Errorf("%d sources, want those of the pods that are compared: %d", n, sources)
	}
}

// A strategy that is not the agent's does not ask agents.
func TestAgent_OtherStrategies(t *testing.T) {
	a := newAgents(t)
	a.report(pod1, status.Failed, "check: exit code 1")
	a.annotate(policy.StrategyAnnotation, "")
	a.expect("annotation", decide.InSync, "ContentApplied", "The pods run with the current content. The next change restarts them.")
}
