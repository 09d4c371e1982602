// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// pods returns a template that consists of the parts.
func pods(parts ...func(*corev1.PodSpec)) *corev1.PodSpec {
	out := &corev1.PodSpec{}
	for _, p := range parts {
		p(out)
	}
	return out
}

// container returns a container with variables from ConfigMaps; NAME:KEY reads one key.
func container(name string, reads ...string) corev1.Container {
	out := *pod(reads...).Containers[0].DeepCopy()
	out.Name = name
	return out
}

func app(name string, reads ...string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.Containers = append(p.Containers, container(name, reads...)) }
}

func initially(name string, reads ...string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.InitContainers = append(p.InitContainers, container(name, reads...)) }
}

func sidecar(name string, policy corev1.ContainerRestartPolicy, reads ...string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		initially(name, reads...)(p)
		p.InitContainers[len(p.InitContainers)-1].RestartPolicy = &policy
	}
}

// mounts adds a volume of a ConfigMap, of one key if the key is named, and a container that mounts the volume.
func mounts(name, key, subPath string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		v := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
		if key != "" {
			v.ConfigMap.Items = []corev1.KeyToPath{{Key: key, Path: key}}
		}
		p.Volumes = append(p.Volumes, v)
		c := &p.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name, SubPath: subPath})
	}
}

// drives adds a volume of a CSI driver that reads objects which are not in the index.
func drives(p *corev1.PodSpec) {
	p.Volumes = append(p.Volumes, corev1.Volume{Name: "csi", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "secrets-store.csi.k8s.io", VolumeAttributes: map[string]string{"secretProviderClass": "vault"},
	}}})
	c := &p.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "csi", MountPath: "/csi"})
}

func pulls(secret string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}} }
}

// Containers start one by one: a missing source of a container delays that container, and the ones after it if it
// has to finish first. A missing source of a volume delays all containers.
func TestGraph_StartedOfContainers(t *testing.T) {
	const template = 100 // the version of the template; x is created at 110
	env := func(container string) *Use { return &Use{Type: Env, Container: container} }
	volume := &Use{Type: Volume, Container: "app"}
	x := []string{"a"} // the keys of x when it is created
	for name, tt := range map[string]struct {
		pod    *corev1.PodSpec
		keys   []string
		before []string // the keys of x before that
		use    *Use
		want   uint64
	}{
		"a container that reads the source":                                {pods(app("app", "x"), app("b", "y")), x, nil, env("app"), 111},
		"another container":                                                {pods(app("app", "x"), app("b", "y")), x, nil, env("b"), template},
		"an earlier container":                                             {pods(app("b", "y"), app("app", "x")), x, nil, env("b"), template},
		"an earlier container that reads nothing":                          {pods(app("b"), app("app", "x")), x, nil, env("b"), template},
		"a container that reads one key":                                   {pods(app("app", "x:a"), app("b", "y")), x, nil, env("app"), 111},
		"a container after an init container that reads the source":        {pods(initially("init", "x"), app("app", "y")), x, nil, env("app"), 111},
		"an init container that reads the source":                          {pods(initially("init", "x"), app("app", "y")), x, nil, env("init"), 111},
		"an init container before the one that reads the source":           {pods(initially("first", "y"), initially("init", "x"), app("app", "y")), x, nil, env("first"), template},
		"a container after an init container with restartPolicy OnFailure": {pods(sidecar("init", "OnFailure", "x"), app("app", "y")), x, nil, env("app"), 111},
		"a container after a sidecar that reads the source":                {pods(sidecar("side", corev1.ContainerRestartPolicyAlways, "x"), app("app", "y")), x, nil, env("app"), template},
		"a sidecar that reads the source":                                  {pods(sidecar("side", corev1.ContainerRestartPolicyAlways, "x"), app("app", "y")), x, nil, env("side"), 111},
		"an init container before a container that reads the source":       {pods(initially("init", "y"), app("app", "x")), x, nil, env("init"), template},
		"files beside a container that reads the source":                   {pods(app("app", "x"), mounts("y", "", "")), x, nil, volume, template},
		"files of the source":                                              {pods(app("app"), mounts("x", "", "")), x, nil, volume, 111},
		"a container of a pod with files of the source":                    {pods(app("app", "y"), mounts("x", "", "")), x, nil, env("app"), 111},
		"files with a missing key":                                         {pods(app("app"), mounts("x", "a", "")), x, []string{"b"}, volume, 111},
		"files with all keys":                                              {pods(app("app"), mounts("x", "a", "")), []string{"a", "b"}, x, volume, template},
		"a subPath file that may be missing":                               {pods(app("app"), mounts("x", "", "a")), x, []string{"b"}, volume, template},
		"a variable with a missing key":                                    {pods(app("app", "x:a")), x, []string{"b"}, env("app"), 111},
		"variables of all keys":                                            {pods(app("app", "x")), x, []string{"b"}, env("app"), template},
		"a container of a pod whose image pull secret is missing":          {pods(app("app", "y"), pulls("x")), x, nil, env("app"), template},
		"files beside a container that reads a key":                        {pods(app("app", "x:a"), mounts("y", "", "")), x, nil, volume, template},
		"variables beside a file that may be missing":                      {pods(app("app", "x"), mounts("y", "", "none")), x, nil, env("app"), 111},
		"variables beside a volume of a CSI driver":                        {pods(app("app", "x"), drives), x, nil, env("app"), 111},
		"an image pull secret beside files of the source":                  {pods(app("app"), mounts("x", "", "")), x, nil, &Use{Type: ImagePullSecret}, template},
		"an image pull secret beside variables of the source":              {pods(app("app", "x")), x, nil, &Use{Type: ImagePullSecret}, template},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{g: NewGraph(), version: template}
			w.g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Job, "shop", "other"}, References: referencesOf(pod("x", "y"))}, Patterns{})
			w.set("y", 10, "a")
			if tt.before != nil {
				w.set("x", 11, tt.before...)
			}
			o := &appsv1.Deployment{}
			o.Namespace, o.Name, o.ResourceVersion = "shop", "web", "100"
			o.Spec.Template.Spec = *tt.pod
			d := readDeployment(o)
			d.After(nil, Arrival{Live: true})
			w.g.SetWorkload(d, Patterns{})
			before := w.g.Workload(d.WorkloadKey)
			was := w.g.Started(before, tt.use)
			w.set("x", 110, tt.keys...)
			if got := w.g.Started(w.g.Workload(d.WorkloadKey), tt.use); got != tt.want {
				t.Errorf("Started = %d, want %d", got, tt.want)
			}
			if got := w.g.Started(before, tt.use); got != was {
				t.Errorf("Started of an earlier value of the workload = %d, was %d", got, was)
			}
			w.g.SetSeveralCounters(true)
			if got := w.g.Started(w.g.Workload(d.WorkloadKey), tt.use); got != 0 {
				t.Errorf("with several revision counters, Started = %d, want 0", got)
			}
		})
	}
}

// A missing Secret delays a container that reads a key of it, and nothing if it is only an image pull secret.
func TestGraph_StartedOfContainersWithSecrets(t *testing.T) {
	key := SourceKey{Secret, "shop", "x"}
	readsKey := func(p *corev1.PodSpec) {
		p.Containers = append(p.Containers, corev1.Container{Name: "app", Env: []corev1.EnvVar{
			{Name: "PLAIN", Value: "1"},
			{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "a"}}},
		}})
	}
	for name, tt := range map[string]struct {
		pod  *corev1.PodSpec
		use  Use
		want uint64
	}{
		"the container that reads the Secret": {pods(readsKey, mounts("y", "", "")), Use{Type: Env, Container: "app"}, 111},
		"files beside that container":         {pods(readsKey, mounts("y", "", "")), Use{Type: Volume, Container: "app"}, 100},
		"the Secret only pulls images":        {pods(app("app", "y"), pulls("x")), Use{Type: EnvFrom, Container: "app"}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{g: NewGraph()}
			o := &appsv1.Deployment{}
			o.Namespace, o.Name, o.ResourceVersion = "shop", "web", "100"
			o.Spec.Template.Spec = *tt.pod
			d := readDeployment(o)
			d.After(nil, Arrival{Live: true})
			w.g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Job, "shop", "other"}, References: referencesOf(pod("y"))}, Patterns{})
			w.set("y", 10, "a")
			w.g.SetWorkload(d, Patterns{})
			s := &Source{SourceKey: key, ResourceVersion: "110", Keys: []KeyDigest{{Key: "a"}}}
			s.After(nil, nil, Arrival{Live: true, Seen: seenAt})
			w.g.SetSource(s)
			if got := w.g.Started(w.g.Workload(d.WorkloadKey), &tt.use); got != tt.want {
				t.Errorf("Started = %d, want %d", got, tt.want)
			}
		})
	}
}
