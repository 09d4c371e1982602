// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
)

// A change of a source.
type change struct {
	what            string
	kind, namespace string
	name            string
	// patch is a merge patch of the source, with the value in place of VALUE.
	patch string
	// metadata: the content stays the same. Returns: the source disappears, and comes back with other content.
	metadata, returns bool
}

var (
	counted   = &change{what: "a key that containers read changes", kind: "ConfigMap", namespace: "shop", name: "app-config", patch: `{"data": {"level": "VALUE"}}`}
	uncounted = &change{what: "a key that few containers read changes", kind: "ConfigMap", namespace: "shop", name: "app-config", patch: `{"data": {"unused": "VALUE"}}`}
	annotated = &change{what: "an annotation changes", kind: "ConfigMap", namespace: "shop", name: "app-config", patch: `{"metadata": {"annotations": {"team": "VALUE"}}}`, metadata: true}
	rotated   = &change{what: "a Secret changes", kind: "Secret", namespace: "shop", name: "db", patch: `{"stringData": {"password": "VALUE"}}`}
	named     = &change{what: "a source changes that only annotations name", kind: "ConfigMap", namespace: "shop", name: "extra", patch: `{"data": {"level": "VALUE"}}`}
	marked    = &change{what: "a marked source changes", kind: "ConfigMap", namespace: "shop", name: "marked", patch: `{"data": {"level": "VALUE"}}`}
	ignored   = &change{what: "an ignored source changes", kind: "ConfigMap", namespace: "shop", name: "ignored", patch: `{"data": {"level": "VALUE"}}`}
	returned  = &change{what: "a source comes back with other content", kind: "ConfigMap", namespace: "shop", name: "extra", returns: true}
	inBank    = &change{what: "a key changes in the other namespace", kind: "ConfigMap", namespace: "bank", name: "app-config", patch: `{"data": {"level": "VALUE"}}`}
	bankDB    = &change{what: "a Secret changes in the other namespace", kind: "Secret", namespace: "bank", name: "db", patch: `{"stringData": {"password": "VALUE"}}`}

	// returned is the last one of its source: those that only configdep would restart stay so.
	changes = []*change{counted, uncounted, annotated, rotated, named, marked, ignored, returned, inBank, bankDB}
)

// id returns how the API calls the source.
func (c *change) id() string { return c.kind + "/" + c.name }

// A verdict is which tools restart a workload because of a change.
type verdict struct {
	reloader, configdep bool
	// difference is the row of the table of intended differences, if the two are not the same.
	difference string
	// state is how configdep shows the workload if it would not restart it; empty: InSync, ContentApplied.
	state, reason string
}

var both = verdict{reloader: true, configdep: true}

func reloaderAlone(difference string) verdict { return verdict{reloader: true, difference: difference} }

func configdepAlone(difference string) verdict {
	return verdict{configdep: true, difference: difference}
}

func (v verdict) shown(state v1alpha1.State, reason string) verdict {
	v.state, v.reason = string(state), reason
	return v
}

var (
	keysOnly    = reloaderAlone("what `auto` and `search` look at")
	comesBack   = configdepAlone("a source disappears and comes back with other content")
	aDot        = reloaderAlone("a dot in a plain name")
	alternative = reloaderAlone("alternatives in a regular expression")
	invalid     = reloaderAlone("an invalid value").shown(v1alpha1.StateBlocked, policy.ReasonInvalidAnnotation)
	hides       = configdepAlone("a volume that no container mounts")
	byAUser     = reloaderAlone("a Deployment that a user has paused").shown(v1alpha1.StateBlocked, policy.ReasonPaused)
	noReplicas  = reloaderAlone("no replicas").shown(v1alpha1.StateInSync, policy.ReasonNoPods)
	keyMissing  = reloaderAlone("a source or key that pods need is missing").shown(v1alpha1.StateBlocked, policy.ReasonKeyMissing)
)

// workload is a workload with an annotation of Reloader, or none.
type workload struct {
	kind, namespace, name string
	annotations, template map[string]string
	reads                 []read
	because               map[*change]verdict
}

// id names a workload as in events.
func (w *workload) id() string { return w.kind + " " + w.namespace + "/" + w.name }

// view returns the name of its ConfigDependency.
func (w *workload) view() string { return strings.ToLower(w.kind) + "." + w.name }

// Annotations of Reloader.
const (
	auto            = "reloader.stakater.com/auto"
	autoConfigMap   = "configmap.reloader.stakater.com/auto"
	autoSecret      = "secret.reloader.stakater.com/auto"
	configMapReload = "configmap.reloader.stakater.com/reload"
	secretReload    = "secret.reloader.stakater.com/reload"
	search          = "reloader.stakater.com/search"
	match           = "reloader.stakater.com/match"
	ignore          = "reloader.stakater.com/ignore"
	excluded        = "configmaps.exclude.reloader.stakater.com/reload"
)

type annotations = map[string]string

var workloads = []*workload{
	{
		kind: "Deployment", namespace: "shop", name: "auto", annotations: annotations{auto: "true"}, reads: []read{key("app-config", "level")},
		because: map[*change]verdict{counted: both, uncounted: keysOnly},
	},
	{
		kind: "StatefulSet", namespace: "shop", name: "all", annotations: annotations{auto: "true"}, reads: []read{configMap("app-config"), secret("db")},
		because: map[*change]verdict{counted: both, uncounted: both, rotated: both},
	},
	{
		kind: "DaemonSet", namespace: "shop", name: "items", annotations: annotations{auto: "true"}, reads: []read{volume("items", true, "level")},
		because: map[*change]verdict{counted: both, uncounted: keysOnly},
	},
	{
		kind: "Deployment", namespace: "shop", name: "config-maps", annotations: annotations{autoConfigMap: "true"}, reads: []read{configMap("app-config"), secret("db")},
		because: map[*change]verdict{counted: both, uncounted: both},
	},
	{
		kind: "StatefulSet", namespace: "shop", name: "secrets", annotations: annotations{autoSecret: "true"}, reads: []read{configMap("app-config"), secret("db")},
		because: map[*change]verdict{rotated: both},
	},
	{
		kind: "Deployment", namespace: "shop", name: "named", annotations: annotations{configMapReload: "app-config"}, reads: []read{key("app-config", "level")},
		because: map[*change]verdict{counted: both, uncounted: both},
	},
	{
		kind: "DaemonSet", namespace: "shop", name: "named-unread", annotations: annotations{configMapReload: "other, extra"}, reads: []read{configMap("app-config")},
		because: map[*change]verdict{named: both, returned: comesBack},
	},
	{
		kind: "Deployment", namespace: "shop", name: "expression", annotations: annotations{configMapReload: "app-.*"}, reads: []read{key("app-config", "level")},
		because: map[*change]verdict{counted: both, uncounted: both},
	},
	{
		kind: "Deployment", namespace: "shop", name: "alternatives", annotations: annotations{configMapReload: "app|extra"}, reads: []read{configMap("app-config")},
		because: map[*change]verdict{counted: alternative, uncounted: alternative, named: both, returned: comesBack},
	},
	{
		kind: "StatefulSet", namespace: "shop", name: "dot", annotations: annotations{configMapReload: "app.config"}, reads: []read{configMap("app-config")},
		because: map[*change]verdict{counted: aDot, uncounted: aDot},
	},
	{
		kind: "Deployment", namespace: "shop", name: "search", annotations: annotations{search: "true"}, reads: []read{configMap("app-config"), configMap("marked")},
		because: map[*change]verdict{marked: both},
	},
	{
		kind: "DaemonSet", namespace: "shop", name: "exclude", annotations: annotations{auto: "true", excluded: "app-config"}, reads: []read{configMap("app-config"), secret("db")},
		because: map[*change]verdict{rotated: both},
	},
	{
		kind: "Deployment", namespace: "shop", name: "ignore", annotations: annotations{configMapReload: "ignored"}, reads: []read{configMap("ignored")},
	},
	{
		kind: "Deployment", namespace: "shop", name: "template", template: annotations{auto: "true"}, reads: []read{key("app-config", "level"), secret("db")},
		because: map[*change]verdict{counted: both, uncounted: keysOnly, rotated: both},
	},
	{
		kind: "StatefulSet", namespace: "shop", name: "not-the-template", annotations: annotations{auto: "false"}, template: annotations{auto: "true"},
		reads: []read{configMap("app-config")},
	},
	{
		kind: "Deployment", namespace: "shop", name: "named-and-not-auto", annotations: annotations{auto: "false", secretReload: "db"},
		reads: []read{configMap("app-config"), secret("db")}, because: map[*change]verdict{rotated: both},
	},
	{
		kind: "Deployment", namespace: "shop", name: "invalid", annotations: annotations{auto: "yes", configMapReload: "app-config"},
		reads: []read{configMap("app-config")}, because: map[*change]verdict{counted: invalid, uncounted: invalid},
	},
	{
		kind: "Deployment", namespace: "shop", name: "init", annotations: annotations{auto: "true"}, reads: []read{initContainer("app-config")},
		because: map[*change]verdict{counted: both, uncounted: both},
	},
	{kind: "Deployment", namespace: "shop", name: "not-mounted", annotations: annotations{auto: "true"}, reads: []read{volume("a", false)}},
	{
		kind: "Deployment", namespace: "shop", name: "hidden", annotations: annotations{auto: "true"}, reads: []read{volume("a", false), volume("b", true)},
		because: map[*change]verdict{counted: hides, uncounted: hides},
	},
	{
		kind: "Deployment", namespace: "shop", name: paused, annotations: annotations{auto: "true"}, reads: []read{configMap("app-config")},
		because: map[*change]verdict{counted: byAUser, uncounted: byAUser},
	},
	{
		kind: "StatefulSet", namespace: "shop", name: scaledDown, annotations: annotations{auto: "true"}, reads: []read{configMap("app-config")},
		because: map[*change]verdict{counted: noReplicas, uncounted: noReplicas},
	},
	{
		kind: "Deployment", namespace: "shop", name: "key-missing", annotations: annotations{auto: "true"}, reads: []read{key("app-config", "absent")},
		because: map[*change]verdict{counted: keyMissing, uncounted: keyMissing},
	},
	{kind: "Deployment", namespace: "shop", name: "not-annotated", reads: []read{configMap("app-config"), secret("db")}},
	{
		kind: "Deployment", namespace: "bank", name: "auto", annotations: annotations{auto: "true"}, reads: []read{key("app-config", "level")},
		because: map[*change]verdict{inBank: both},
	},
	{
		kind: "StatefulSet", namespace: "bank", name: "named", annotations: annotations{secretReload: "db"}, reads: []read{secret("db")},
		because: map[*change]verdict{bankDB: both},
	},
	{
		kind: "DaemonSet", namespace: "bank", name: "all", annotations: annotations{auto: "true"}, reads: []read{configMap("app-config"), secret("db")},
		because: map[*change]verdict{inBank: both, bankDB: both},
	},
}

const (
	paused     = "paused" // by its user
	scaledDown = "scaled-down"
)

// A read makes a container read a source.
type read func(*corev1.PodSpec)

func key(name, key string) read {
	return func(p *corev1.PodSpec) {
		from := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}
		p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: strings.ToUpper(key), ValueFrom: from})
	}
}

func configMap(name string) read {
	return func(p *corev1.PodSpec) {
		from := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		p.Containers[0].EnvFrom = append(p.Containers[0].EnvFrom, corev1.EnvFromSource{ConfigMapRef: from})
	}
}

func secret(name string) read {
	return func(p *corev1.PodSpec) {
		from := &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		p.Containers[0].EnvFrom = append(p.Containers[0].EnvFrom, corev1.EnvFromSource{SecretRef: from})
	}
}

func initContainer(name string) read {
	return func(p *corev1.PodSpec) {
		from := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		p.InitContainers = []corev1.Container{{Name: "init", Image: "app", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: from}}}}
	}
}

// volume adds a volume with keys of app-config, or all.
func volume(name string, mounted bool, keys ...string) read {
	return func(p *corev1.PodSpec) {
		from := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app-config"}}
		for _, key := range keys {
			from.Items = append(from.Items, corev1.KeyToPath{Key: key, Path: key})
		}
		p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: from}})
		if mounted {
			p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
}

// create creates the namespaces, the sources and the workloads.
func create(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{"shop", "bank"} {
		check(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))
		for name, mark := range map[string]string{"app-config": "", "extra": "", "marked": match, "ignored": ignore} {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"level": "old", "unused": "old"}}
			if mark != "" {
				o.Annotations = annotations{mark: "true"}
			}
			check(client.CoreV1().ConfigMaps(namespace).Create(ctx, o, metav1.CreateOptions{}))
		}
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "old"}}
		check(client.CoreV1().Secrets(namespace).Create(ctx, o, metav1.CreateOptions{}))
	}
	for _, w := range workloads {
		meta, labels := metav1.ObjectMeta{Name: w.name, Annotations: w.annotations}, map[string]string{"app": w.name}
		selector, replicas := &metav1.LabelSelector{MatchLabels: labels}, new(int32(1))
		if w.name == scaledDown {
			replicas = new(int32(0))
		}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: w.template}, Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "app", Image: "app"}},
			TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
		}}
		for _, read := range w.reads {
			read(&template.Spec)
		}
		apps := client.AppsV1()
		switch w.kind {
		case "Deployment":
			o := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: replicas, Selector: selector, Template: template}}
			check(apps.Deployments(w.namespace).Create(ctx, o, metav1.CreateOptions{}))
		case "StatefulSet":
			o := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: replicas, Selector: selector, Template: template}}
			check(apps.StatefulSets(w.namespace).Create(ctx, o, metav1.CreateOptions{}))
		default:
			o := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
			check(apps.DaemonSets(w.namespace).Create(ctx, o, metav1.CreateOptions{}))
		}
	}
}

// templates returns the pod templates of all workloads.
func templates(ctx context.Context) (map[string]corev1.PodTemplateSpec, error) {
	found := map[string]corev1.PodTemplateSpec{}
	for _, namespace := range []string{"shop", "bank"} {
		apps := client.AppsV1()
		deployments, err := apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range deployments.Items {
			found[fmt.Sprintf("Deployment %s/%s", namespace, deployments.Items[i].Name)] = deployments.Items[i].Spec.Template
		}
		statefulSets, err := apps.StatefulSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range statefulSets.Items {
			found[fmt.Sprintf("StatefulSet %s/%s", namespace, statefulSets.Items[i].Name)] = statefulSets.Items[i].Spec.Template
		}
		daemonSets, err := apps.DaemonSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range daemonSets.Items {
			found[fmt.Sprintf("DaemonSet %s/%s", namespace, daemonSets.Items[i].Name)] = daemonSets.Items[i].Spec.Template
		}
	}
	return found, nil
}
