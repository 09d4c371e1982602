package simulation

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// how is a way in which a template uses a source.
type how int

const (
	env       how = iota // one key as a variable
	envFrom              // all keys as variables
	volume               // all keys as files
	items                // one key as a file
	subPath              // one key as a file that is not updated
	projected            // all keys as files, in a projected volume
)

// use is one use of a source by a template.
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

// live tells whether the container sees a change without a restart.
func (u use) live() bool { return u.how == volume || u.how == items || u.how == projected }

// starts tells whether a pod with this use starts.
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

// variants are what the templates of workloads use.
var variants = [][]use{
	{{source: 0, how: env, key: 0}, {source: 2, how: env, key: 1}},
	{{source: 0, how: envFrom}, {source: 2, how: envFrom, optional: true}},
	{{source: 0, how: volume}, {source: 2, how: env, key: 0}},
	{{source: 0, how: env, key: 0}, {source: 0, how: volume}},
	{{source: 0, how: env, key: 0, optional: true}, {source: 3, how: env, key: 2, optional: true}, {source: 2, how: volume, optional: true}},
	{{source: 1, how: items, key: 1}, {source: 3, how: subPath, key: 0}, {source: 0, how: env, key: 2, optional: true}},
	{{source: 0, how: projected}, {source: 2, how: projected}, {source: 1, how: env, key: 0}},
	{{source: 0, how: volume}, {source: 2, how: volume}},
	{{source: 1, how: envFrom}, {source: 3, how: envFrom}},
	{{source: 2, how: env, key: 0}},
}

// crashing is the image whose pods never become ready.
const crashing = 100

// podSpecs are those of the variants, without an image.
var podSpecs = func() []corev1.PodSpec {
	var specs []corev1.PodSpec
	for _, uses := range variants {
		specs = append(specs, podSpec(uses))
	}
	return specs
}()

func podSpec(uses []use) corev1.PodSpec {
	c := corev1.Container{Name: "app"}
	var spec corev1.PodSpec
	for i, u := range uses {
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
			c.Env = append(c.Env, corev1.EnvVar{Name: "VAR" + string(rune('0'+i)), ValueFrom: from})
			continue
		case envFrom:
			from := corev1.EnvFromSource{}
			if isSecret(u.source) {
				from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: name, Optional: optional}
			} else {
				from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: name, Optional: optional}
			}
			c.EnvFrom = append(c.EnvFrom, from)
			continue
		}
		v := corev1.Volume{Name: "volume-" + string(rune('0'+i))}
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
	spec.Containers = []corev1.Container{c}
	return spec
}

// podTemplate returns a pod template as an API object.
func podTemplate(variant, image int, annotations map[string]string) corev1.PodTemplateSpec {
	spec := podSpecs[variant]
	container := spec.Containers[0]
	container.Image = "app:" + string(rune('0'+image%10))
	if image == crashing {
		container.Image = "app:crashing"
	}
	spec.Containers = []corev1.Container{container}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: spec}
}
