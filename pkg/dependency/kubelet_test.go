// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"maps"
	"math/rand"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// world is the content of all sources.
type world map[sourceID]*content

// content is the content of one source.
type content struct{ data map[string]string }

// kubelet returns what the containers of a pod see of its sources, and whether they start. It follows the kubelet
// of Kubernetes 1.37 as closely as possible: makeEnvironmentVariables and makeMounts in
// pkg/kubelet/kubelet_pods.go, MakePayload in pkg/volume/configmap and secret, collectData in
// pkg/volume/projected, and processPodVolumes in pkg/kubelet/volumemanager/populator. Overridden variables and
// files (of the same name or path) are included, in their order.
func kubelet(pod *corev1.PodSpec, w world) (sees string, starts bool) {
	k := &kubeletModel{world: w, starts: true}
	containers := containersOf(pod)
	for i := range containers {
		k.environment(&containers[i])
	}
	for i := range pod.Volumes {
		k.volume(&pod.Volumes[i], containers)
	}
	return k.seen.String(), k.starts
}

type kubeletModel struct {
	world  world
	seen   strings.Builder
	starts bool
}

func (k *kubeletModel) see(format string, args ...any) { fmt.Fprintf(&k.seen, format+"\n", args...) }

func (k *kubeletModel) need(there bool, optional *bool) {
	if !there && (optional == nil || !*optional) {
		k.starts = false
	}
}

func (k *kubeletModel) environment(c *corev1.Container) {
	all := func(kind SourceKind, name string, optional *bool) {
		source := k.world[sourceID{kind, name}]
		k.need(source != nil, optional)
		if source == nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(source.data)) {
			k.see("%s: %s/%s: %s=%q", c.Name, kind, name, key, source.data[key])
		}
	}
	for _, from := range c.EnvFrom {
		if r := from.ConfigMapRef; r != nil {
			all(ConfigMap, r.Name, r.Optional)
		}
		if r := from.SecretRef; r != nil {
			all(Secret, r.Name, r.Optional)
		}
	}
	one := func(variable string, kind SourceKind, name, key string, optional *bool) {
		source := k.world[sourceID{kind, name}]
		var value string
		var found bool
		if source != nil {
			value, found = source.data[key]
		}
		k.need(found, optional)
		if found {
			k.see("%s: $%s=%q", c.Name, variable, value)
		}
	}
	for _, env := range c.Env {
		if r := env.ValueFrom.ConfigMapKeyRef; r != nil {
			one(env.Name, ConfigMap, r.Name, r.Key, r.Optional)
		}
		if r := env.ValueFrom.SecretKeyRef; r != nil {
			one(env.Name, Secret, r.Name, r.Key, r.Optional)
		}
	}
}

func (k *kubeletModel) volume(v *corev1.Volume, containers []corev1.Container) {
	used := false
	for i := range containers {
		for _, m := range containers[i].VolumeMounts {
			used = used || m.Name == v.Name
		}
	}
	if !used {
		return
	}
	if s := v.ConfigMap; s != nil {
		k.files(v.Name, ConfigMap, s.Name, s.Items, s.Optional, containers)
	}
	if s := v.Secret; s != nil {
		k.files(v.Name, Secret, s.SecretName, s.Items, s.Optional, containers)
	}
	if v.Projected != nil {
		for _, p := range v.Projected.Sources {
			if s := p.ConfigMap; s != nil {
				k.files(v.Name, ConfigMap, s.Name, s.Items, s.Optional, containers)
			}
			if s := p.Secret; s != nil {
				k.files(v.Name, Secret, s.Name, s.Items, s.Optional, containers)
			}
		}
	}
}

func (k *kubeletModel) files(volume string, kind SourceKind, name string, items []corev1.KeyToPath, optional *bool, containers []corev1.Container) {
	source := k.world[sourceID{kind, name}]
	k.need(source != nil, optional)
	if source == nil {
		return
	}
	values := maps.Clone(source.data)
	payload := map[string]string{}
	for _, item := range items {
		value, found := values[item.Key]
		k.need(found, optional)
		if found {
			payload[item.Path] = value
		}
	}
	if len(items) == 0 {
		payload = values
	}
	for i := range containers {
		for _, m := range containers[i].VolumeMounts {
			if m.Name != volume {
				continue
			}
			for _, file := range slices.Sorted(maps.Keys(payload)) {
				// A file exists at its path, and again below the folder ..data.
				if m.SubPath == "" || below(m.SubPath, file) || below(m.SubPath, path.Join("..data", file)) {
					k.see("%s: %s: %s/%s: %s=%q", containers[i].Name, m.MountPath, kind, name, file, payload[file])
				}
			}
		}
	}
}

func below(folder, file string) bool {
	folder = path.Clean(folder)
	return folder == "." || file == folder || strings.HasPrefix(file, folder+"/")
}

// If a hash stays the same although pods would see a difference, a change is lost; if the hash changes although
// they would not, a restart is unnecessary. And a source is missing if and only if pods do not start.
func TestHashAndMissingSourcesAgreeWithTheKubelet(t *testing.T) {
	withSeeds(t, 1, hashAndMissingSourcesAgreeWithTheKubelet)
}

func hashAndMissingSourcesAgreeWithTheKubelet(t *testing.T, r *rand.Rand) {
	t.Helper()
	d := NewDigester(make([]byte, KeySize))
	const runs = 5_000
	var same, starting int
	for range runs {
		pod := randomPod(r)
		a := randomWorld(r)
		b := changedWorld(r, a)
		references := referencesOf(pod)

		seenA, starts := kubelet(pod, a)
		seenB, _ := kubelet(pod, b)
		hashA, sources := hashOf(d, references, a)
		hashB, _ := hashOf(d, references, b)
		if seenA == seenB {
			same++
		}
		if (hashA == hashB) != (seenA == seenB) {
			t.Fatalf("pods see\n%sand then\n%sbut the hashes are %s and %s\n%s", seenA, seenB, hashA, hashB, show(t, pod))
		}

		if starts {
			starting++
		}
		var missing []string
		for i := range references {
			if res := Resolve(&references[i], sources(references[i].Kind, references[i].Name)); res.Missing {
				missing = append(missing, fmt.Sprint(references[i].Kind, " ", references[i].Name, " ", res.MissingKeys))
			}
		}
		if (len(missing) == 0) != starts {
			t.Fatalf("pods start = %v, missing = %q, content: %s\n%s", starts, missing, showWorld(a), show(t, pod))
		}
	}
	if same < runs/10 || same > runs*9/10 || starting < runs/10 || starting > runs*9/10 {
		t.Errorf("the cases are too similar: of %d, pods saw the same in %d and started in %d", runs, same, starting)
	}
}

func hashOf(d *Digester, references []Reference, w world) (string, func(SourceKind, string) *Source) {
	sources := map[sourceID]*Source{}
	for id, c := range w {
		sources[id] = c.source(d, id)
	}
	lookup := func(kind SourceKind, name string) *Source { return sources[sourceID{kind, name}] }
	return configHash(d, "shop", references, lookup), lookup
}

// source returns the source with the content, kind and name.
func (c *content) source(d *Digester, id sourceID) *Source {
	bytesOf := func(m map[string]string) map[string][]byte {
		out := map[string][]byte{}
		for k, v := range m {
			out[k] = []byte(v)
		}
		return out
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: id.name}
	if id.kind == Secret {
		return read(d, &corev1.Secret{ObjectMeta: meta, Data: bytesOf(c.data)})
	}
	return read(d, &corev1.ConfigMap{ObjectMeta: meta, Data: c.data})
}

var (
	allSources = []sourceID{{ConfigMap, "one"}, {ConfigMap, "two"}, {Secret, "one"}, {Secret, "two"}}
	allKeys    = []string{"a", "b", "c"}
)

func randomWorld(r *rand.Rand) world {
	w := world{}
	for _, id := range allSources {
		if chance(r, 6) {
			continue
		}
		c := &content{data: map[string]string{}}
		for _, key := range allKeys {
			if !chance(r, 6) {
				c.data[key] = pick(r, "", "x", "y")
			}
		}
		w[id] = c
	}
	return w
}

// changedWorld returns a copy of w with changes to at most two keys or sources.
func changedWorld(r *rand.Rand, w world) world {
	out := world{}
	for id, c := range w {
		out[id] = &content{maps.Clone(c.data)}
	}
	for range r.Intn(3) {
		id := pick(r, allSources...)
		c, key := out[id], pick(r, allKeys...)
		switch {
		case c == nil:
			out[id] = &content{data: map[string]string{}}
		case chance(r, 5):
			delete(out, id)
		case chance(r, 3):
			delete(c.data, key)
		default:
			c.data[key] = pick(r, "x", "y")
		}
	}
	return out
}

func randomPod(r *rand.Rand) *corev1.PodSpec {
	pod := &corev1.PodSpec{InitContainers: randomContainers(r, "init", r.Intn(2)), Containers: randomContainers(r, "app", 1+r.Intn(2))}
	for i := range r.Intn(4) {
		v := corev1.Volume{Name: fmt.Sprint("volume-", i)}
		switch id := pick(r, allSources...); {
		case chance(r, 3):
			v.Projected = &corev1.ProjectedVolumeSource{}
			for range 1 + r.Intn(2) {
				v.Projected.Sources = append(v.Projected.Sources, randomProjection(r))
			}
		case id.kind == Secret:
			v.Secret = &corev1.SecretVolumeSource{SecretName: id.name, Items: randomItems(r), Optional: randomOptional(r)}
		default:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{Items: randomItems(r), Optional: randomOptional(r)}
			v.ConfigMap.Name = id.name
		}
		pod.Volumes = append(pod.Volumes, v)
		for j := range pod.Containers {
			if chance(r, 3) {
				continue
			}
			pod.Containers[j].VolumeMounts = append(pod.Containers[j].VolumeMounts, corev1.VolumeMount{
				Name: v.Name, MountPath: fmt.Sprint("/", i),
				SubPath: pick(r, "", "", "", "a", "./b/", "d", "d/a", "..data", "..data/a", "..data/d", "..data/d/b", "other"),
			})
		}
	}
	return pod
}

func randomContainers(r *rand.Rand, name string, n int) (out []corev1.Container) {
	for i := range n {
		c := corev1.Container{Name: fmt.Sprint(name, i)}
		if chance(r, 3) {
			from := corev1.EnvFromSource{}
			if id := pick(r, allSources...); id.kind == Secret {
				from.SecretRef = &corev1.SecretEnvSource{Optional: randomOptional(r)}
				from.SecretRef.Name = id.name
			} else {
				from.ConfigMapRef = &corev1.ConfigMapEnvSource{Optional: randomOptional(r)}
				from.ConfigMapRef.Name = id.name
			}
			c.EnvFrom = append(c.EnvFrom, from)
		}
		for j := range r.Intn(3) {
			env := corev1.EnvVar{Name: fmt.Sprint("V", j), ValueFrom: &corev1.EnvVarSource{}}
			if id := pick(r, allSources...); id.kind == Secret {
				env.ValueFrom.SecretKeyRef = &corev1.SecretKeySelector{Key: pick(r, allKeys...), Optional: randomOptional(r)}
				env.ValueFrom.SecretKeyRef.Name = id.name
			} else {
				env.ValueFrom.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{Key: pick(r, allKeys...), Optional: randomOptional(r)}
				env.ValueFrom.ConfigMapKeyRef.Name = id.name
			}
			c.Env = append(c.Env, env)
		}
		out = append(out, c)
	}
	return out
}

func randomProjection(r *rand.Rand) corev1.VolumeProjection {
	id, items, optional := pick(r, allSources...), randomItems(r), randomOptional(r)
	if id.kind == Secret {
		s := &corev1.SecretProjection{Items: items, Optional: optional}
		s.Name = id.name
		return corev1.VolumeProjection{Secret: s}
	}
	s := &corev1.ConfigMapProjection{Items: items, Optional: optional}
	s.Name = id.name
	return corev1.VolumeProjection{ConfigMap: s}
}

func randomItems(r *rand.Rand) (out []corev1.KeyToPath) {
	if chance(r, 2) {
		return nil
	}
	paths := []string{"a", "b", "d/a", "d/b"}
	r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	for _, p := range paths[:1+r.Intn(3)] {
		out = append(out, corev1.KeyToPath{Key: pick(r, allKeys...), Path: p})
	}
	return out
}

func randomOptional(r *rand.Rand) *bool { return pick(r, nil, new(false), new(true), new(true)) }

func show(t *testing.T, pod *corev1.PodSpec) string {
	t.Helper()
	out, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func showWorld(w world) string {
	var b strings.Builder
	for id, c := range w {
		fmt.Fprintf(&b, "%s/%s data %q; ", id.kind, id.name, c.data)
	}
	return b.String()
}
