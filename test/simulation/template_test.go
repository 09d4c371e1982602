// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// how is a way in which a container uses a source.
type how int

const (
	env       how = iota // one key as a variable
	envFrom              // all keys as variables
	volume               // all keys as files
	items                // one key as a file
	subPath              // one key as a file that is not updated
	projected            // all keys as files, in a projected volume
)

// use is one use of a source by a container.
type use struct {
	source   int
	how      how
	key      int
	optional bool
}

// reads returns the keys that reach the container.
func (u use) reads() keySet {
	switch u.how {
	case env, items, subPath:
		return 1 << u.key
	default:
		return allKeys
	}
}

// mounted reports whether a volume shows the source.
func (u use) mounted() bool { return u.how != env && u.how != envFrom }

// live reports whether the container sees changes without a restart.
func (u use) live() bool { return u.mounted() && u.how != subPath }

// starts reports whether a container with this use starts, or the pod, if the use is a volume.
func (u use) starts(present bool, c content) bool {
	switch {
	case u.optional:
		return true
	case u.how == env, u.how == items:
		return present && c[u.key] != 0
	default:
		return present
	}
}

// role is the role of a container in its pod.
type role int

const (
	mainContainer role = iota
	initContainer
	sidecar   // an init container that keeps running
	restarter // a sidecar that restarts all containers of the pod in place when it is told to
)

type containerSpec struct {
	role role
	uses []use
}

func pod1(uses ...use) []containerSpec { return []containerSpec{{uses: uses}} }

// variants are the pods of templates, init containers first: the ordinary ones, the same with a restarter, one that reads nothing itself, and those that read all sources.
var variants = slices.Concat(ordinary, withRestarter(ordinary), [][]containerSpec{pod1()}, wide)

// ordinaryVariants is their number.
var ordinaryVariants = len(ordinary)

// readsNothing is the variant of which only an agent reads sources.
var readsNothing = 2 * ordinaryVariants

// widest is the first variant that reads all sources.
var widest = readsNothing + 1

// restartable is the number of an ordinary variant with a restarter.
func restartable(variant int) int { return ordinaryVariants + variant }

// hasRestarter reports whether the pods of a variant can be restarted in place.
func hasRestarter(variant int) bool { return variants[variant][0].role == restarter }

func withRestarter(ordinary [][]containerSpec) (out [][]containerSpec) {
	for _, containers := range ordinary {
		out = append(out, append([]containerSpec{{role: restarter}}, containers...))
	}
	return out
}

var ordinary = [][]containerSpec{
	pod1(use{source: 0, how: env, key: 0}, use{source: 2, how: env, key: 1}),
	pod1(use{source: 0, how: envFrom}, use{source: 2, how: envFrom, optional: true}),
	pod1(use{source: 0, how: volume}, use{source: 2, how: env, key: 0}),
	pod1(use{source: 0, how: env, key: 0}, use{source: 0, how: volume}),
	pod1(use{source: 0, how: env, key: 0, optional: true}, use{source: 3, how: env, key: 2, optional: true}, use{source: 2, how: volume, optional: true}),
	pod1(use{source: 1, how: items, key: 1}, use{source: 3, how: subPath, key: 0}, use{source: 0, how: env, key: 2, optional: true}),
	pod1(use{source: 0, how: projected}, use{source: 2, how: projected}, use{source: 1, how: env, key: 0}),
	pod1(use{source: 0, how: volume}, use{source: 2, how: volume}),
	pod1(use{source: 1, how: envFrom}, use{source: 3, how: envFrom}),
	pod1(use{source: 2, how: env, key: 0}),
	{{uses: []use{{source: 2, how: env, key: 0}}}, {uses: []use{{source: 1, how: env, key: 0}}}},
	{{role: initContainer, uses: []use{{source: 0, how: env, key: 0}}}, {uses: []use{{source: 2, how: envFrom, optional: true}}}},
	{{role: sidecar, uses: []use{{source: 1, how: env, key: 1}}}, {uses: []use{{source: 2, how: env, key: 0}, {source: 0, how: env, key: 1, optional: true}}}},
	{{uses: []use{{source: 0, how: envFrom}, {source: 3, how: volume}}}, {uses: []use{{source: 1, how: envFrom, optional: true}, {source: 2, how: env, key: 0}}}},
	{{role: sidecar, uses: []use{{source: 2, how: envFrom}}}, {role: initContainer, uses: []use{{source: 1, how: envFrom}}}, {uses: []use{{source: 0, how: envFrom}}}},
}

var wide = [][]containerSpec{
	pod1(use{source: 0, how: envFrom}, use{source: 1, how: volume}, use{source: 2, how: env, key: 0}, use{source: 3, how: env, key: 1, optional: true},
		use{source: 4, how: envFrom}, use{source: 5, how: volume}),
	{{role: initContainer, uses: []use{{source: 4, how: env, key: 0}, {source: 5, how: envFrom}}},
		{uses: []use{{source: 0, how: env, key: 1, optional: true}, {source: 1, how: envFrom, optional: true}, {source: 5, how: subPath, key: 2}}},
		{uses: []use{{source: 2, how: envFrom, optional: true}, {source: 3, how: projected}, {source: 4, how: projected}}}},
}

// Variants by their characteristics, for histories that are written by hand.
const (
	readsOneKey       = 0 // c0.a and s0.b
	readsSecretAndMap = 1 // all of c0, and of s0 if it is there
	readsS0           = 9
	twoContainers     = 10 // one reads s0.a, the other c1.a

	readsAnOptionalSource = 11 // all of s0 if it is there, after an init container that reads c0.a
)

// usesOf returns all uses of a variant.
func usesOf(variant int) (uses []use) {
	for _, c := range variants[variant] {
		uses = append(uses, c.uses...)
	}
	return uses
}

var allUses = func() (all [][]use) {
	for variant := range variants {
		all = append(all, usesOf(variant))
	}
	return all
}()

// crashing is the image whose pods never become ready.
const crashing = 100

// podSpecs are the pods of the variants, without an image.
var podSpecs = func() []corev1.PodSpec {
	var specs []corev1.PodSpec
	for _, containers := range variants {
		specs = append(specs, podSpec(containers))
	}
	return specs
}()

func podSpec(containers []containerSpec) corev1.PodSpec {
	var spec corev1.PodSpec
	for i, c := range containers {
		out := corev1.Container{Name: fmt.Sprint("container-", i)}
		for j, u := range c.uses {
			addUse(&spec, &out, u, fmt.Sprint(i, "-", j))
		}
		switch c.role {
		case mainContainer:
			spec.Containers = append(spec.Containers, out)
			continue
		case sidecar:
			out.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		case restarter:
			addRestarter(&spec, &out)
		}
		spec.InitContainers = append(spec.InitContainers, out)
	}
	return spec
}

// addRestarter makes a container the restarter of its pod, as docs/agent.md describes it.
func addRestarter(spec *corev1.PodSpec, c *corev1.Container) {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
	}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + restartAnnotation + "']"}}},
	}}})
}

// addUse adds a use to a container, and its volume to the pod.
func addUse(spec *corev1.PodSpec, c *corev1.Container, u use, id string) {
	name := corev1.LocalObjectReference{Name: sourceNames[u.source]}
	key := keyNames[u.key]
	var optional *bool
	if u.optional {
		optional = new(true)
	}
	switch u.how {
	case env:
		from := &corev1.EnvVarSource{}
		if isSecret(u.source) {
			from.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: name, Key: key, Optional: optional}
		} else {
			from.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: name, Key: key, Optional: optional}
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: "VAR_" + id, ValueFrom: from})
		return
	case envFrom:
		from := corev1.EnvFromSource{}
		if isSecret(u.source) {
			from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: name, Optional: optional}
		} else {
			from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: name, Optional: optional}
		}
		c.EnvFrom = append(c.EnvFrom, from)
		return
	}
	v := corev1.Volume{Name: "volume-" + id}
	mount := corev1.VolumeMount{Name: v.Name, MountPath: "/etc/" + v.Name}
	var some []corev1.KeyToPath
	if u.how == items {
		some = []corev1.KeyToPath{{Key: key, Path: "file"}}
	}
	if u.how == subPath {
		mount.SubPath = key
	}
	switch {
	case u.how == projected && isSecret(u.source):
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: name, Optional: optional}}}}
	case u.how == projected:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name, Optional: optional}}}}
	case isSecret(u.source):
		v.Secret = &corev1.SecretVolumeSource{SecretName: name.Name, Items: some, Optional: optional}
	default:
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: name, Items: some, Optional: optional}
	}
	spec.Volumes = append(spec.Volumes, v)
	c.VolumeMounts = append(c.VolumeMounts, mount)
}

// podTemplate returns a pod template as an API object. It has its own slices of containers, with shared elements.
func podTemplate(t *template) corev1.PodTemplateSpec {
	spec := podSpecs[t.variant]
	spec.InitContainers = withImage(spec.InitContainers, t.image)
	spec.Containers = withImage(spec.Containers, t.image)
	setEnv(&spec, t.env)
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: t.annotations}, Spec: spec}
}

func withImage(containers []corev1.Container, image int) (out []corev1.Container) {
	for _, c := range containers {
		c.Image = fmt.Sprint("app:", image)
		if image == crashing {
			c.Image = "app:crashing"
		}
		out = append(out, c)
	}
	return out
}
