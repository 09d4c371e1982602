// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func configMap(name string, annotations map[string]string) *source {
	return sourceOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}})
}

// The digests are those that sha1sum prints for KEY=VALUE;KEY=VALUE.
func TestSource_Hash(t *testing.T) {
	for name, tt := range map[string]struct {
		of   any
		want string
	}{
		"no data":                {&corev1.ConfigMap{}, "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		"a key":                  {&corev1.ConfigMap{Data: map[string]string{"key": "new"}}, "e29a1d9de4782dbc5587ef6dac4c3375b5b11c07"},
		"binary data, in base64": {&corev1.ConfigMap{Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {0, 1}}}, "517724d7b9d86f445165ad52230863e4112a04f8"},
		"a Secret, as it is":     {&corev1.Secret{Data: map[string][]byte{"password": []byte("pässword")}}, "cff84ab2be3c69cf677be96dc8c06cc5ed29b5c1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sourceOf(tt.of).hash; got != tt.want {
				t.Errorf("hash = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestSource_Variable(t *testing.T) {
	for name, want := range map[string]string{
		"app-config":   "STAKATER_APP_CONFIG_CONFIGMAP",
		"app.config":   "STAKATER_APP_CONFIG_CONFIGMAP",
		"a--.b":        "STAKATER_A_B_CONFIGMAP",
		"-leading":     "STAKATER_LEADING_CONFIGMAP",
		"trailing1---": "STAKATER_TRAILING1__CONFIGMAP",
	} {
		if got := configMap(name, nil).variable(); got != want {
			t.Errorf("variable of %s = %s, want %s", name, got, want)
		}
	}
}

func TestSource_Selected(t *testing.T) {
	const list, secretList, typed, excluded = "configmap.reloader.stakater.com/reload", "secret.reloader.stakater.com/reload", "configmap.reloader.stakater.com/auto",
		"configmaps.exclude.reloader.stakater.com/reload"
	type annotations = map[string]string
	const named, all = "named", "all"
	for name, tt := range map[string]struct {
		source, workload, template annotations
		want                       string
	}{
		"no annotation":          {},
		"auto":                   {workload: annotations{auto: "true"}, want: all},
		"auto, as Go writes it":  {workload: annotations{auto: "T"}, want: all},
		"auto, invalid":          {workload: annotations{auto: "yes"}},
		"auto of the kind":       {workload: annotations{typed: "true"}, want: all},
		"auto of the other kind": {workload: annotations{"secret.reloader.stakater.com/auto": "true"}},
		"auto of the kind is false, which takes nothing": {workload: annotations{auto: "true", typed: "false"}, want: all},
		"named":                                          {workload: annotations{list: "other, app-config"}, want: named},
		"named, with auto":                               {workload: annotations{list: "app-config", auto: "true"}, want: named},
		"named, although auto is false":                  {workload: annotations{list: "app-config", auto: "false"}, want: named},
		"another one is named":                           {workload: annotations{list: "app"}},
		"an expression":                                  {workload: annotations{list: "app-.*"}, want: named},
		"a dot is any character":                         {workload: annotations{list: "app.config"}, want: named},
		"the first alternative is a prefix":              {workload: annotations{list: "app|web"}, want: named},
		"the last alternative is a suffix":               {workload: annotations{list: "web|config"}, want: named},
		"an invalid expression beside others":            {workload: annotations{list: "(,app-config"}, want: named},
		"an empty list":                                  {workload: annotations{list: ","}},
		"a list of the other kind":                       {workload: annotations{secretList: "app-config"}},
		"search, marked":                                 {workload: annotations{search: "true"}, source: annotations{match: "true"}, want: all},
		"search, not marked":                             {workload: annotations{search: "true"}},
		"search must be exactly true":                    {workload: annotations{search: "T"}, source: annotations{match: "true"}},
		"marked, but not searched":                       {source: annotations{match: "true"}},
		"excluded":                                       {workload: annotations{auto: "true", excluded: "other, app-config"}},
		"excluded, although named":                       {workload: annotations{list: "app-config", excluded: "app-config"}},
		"exclude has no expressions":                     {workload: annotations{auto: "true", excluded: "app-.*"}, want: all},
		"excluded on the template, which does not count": {template: annotations{auto: "true", excluded: "app-config"}, want: all},
		"excluded on the workload of the template":       {workload: annotations{excluded: "app-config"}, template: annotations{auto: "true"}},
		"ignored":                      {workload: annotations{auto: "true"}, source: annotations{ignore: "true"}},
		"ignored, although named":      {workload: annotations{list: "app-config"}, source: annotations{ignore: "true"}},
		"ignored must be exactly true": {workload: annotations{auto: "true"}, source: annotations{ignore: "yes"}, want: all},
		"on the template":              {template: annotations{list: "app-config"}, want: named},
		"on the template, and other kinds on the workload":    {workload: annotations{secretList: "db"}, template: annotations{auto: "true"}, want: all},
		"on the template, and false on the workload":          {workload: annotations{auto: "false"}, template: annotations{auto: "true"}},
		"on the template, and an empty value on the workload": {workload: annotations{search: ""}, template: annotations{auto: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			isNamed, isAll := configMap("app-config", tt.source).selected(tt.workload, tt.template)
			got := map[[2]bool]string{{true, false}: named, {false, true}: all}[[2]bool{isNamed, isAll}]
			if got != tt.want {
				t.Errorf("selected = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSource_Container(t *testing.T) {
	of := corev1.LocalObjectReference{Name: "app-config"}
	volume := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: of}}}
	}
	projected := corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: of}}},
	}}}
	aSecret := corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app-config"}}}
	mounts := func(name string) corev1.Container {
		return corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: name}}}
	}
	env := corev1.Container{Env: []corev1.EnvVar{{Name: "PLAIN"}, {Name: "A", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: of, Key: "key"},
	}}}}
	secretEnv := corev1.Container{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: of}}}}
	envFrom := corev1.Container{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: of}}}}
	none := corev1.Container{}
	const nothing, first, second = "", "0", "1"
	type containers = []corev1.Container
	for name, tt := range map[string]struct {
		volumes     []corev1.Volume
		init        containers
		containers  containers
		read, named string // the container if all that is read counts, and if the source is named
	}{
		"nothing reads it":             {containers: containers{none, none}, read: nothing, named: first},
		"a variable":                   {containers: containers{none, env}, read: second, named: second},
		"all variables":                {containers: containers{none, envFrom}, read: second, named: second},
		"a Secret of the name":         {volumes: []corev1.Volume{aSecret}, containers: containers{mounts("a"), secretEnv}, read: nothing, named: first},
		"a volume":                     {volumes: []corev1.Volume{volume("a")}, containers: containers{none, mounts("a")}, read: second, named: second},
		"a projected volume":           {volumes: []corev1.Volume{projected}, containers: containers{none, mounts("a")}, read: second, named: second},
		"a volume before variables":    {volumes: []corev1.Volume{volume("a")}, containers: containers{env, mounts("a")}, read: second, named: second},
		"a volume that is not mounted": {volumes: []corev1.Volume{volume("a")}, containers: containers{none, none}, read: nothing, named: first},
		"a volume that is not mounted hides the next": {
			volumes: []corev1.Volume{volume("a"), volume("b")}, containers: containers{none, mounts("b")}, read: nothing, named: first,
		},
		"an init container with a variable": {init: containers{env}, containers: containers{none, none}, read: first, named: first},
		"an init container with a volume":   {volumes: []corev1.Volume{volume("a")}, init: containers{mounts("a")}, containers: containers{none, none}, read: first, named: first},
		"an init container and another":     {init: containers{env}, containers: containers{none, env}, read: second, named: second},
		"no container":                      {init: containers{env}, read: nothing, named: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: tt.volumes, InitContainers: tt.init, Containers: tt.containers}}
			for i := range template.Spec.Containers {
				template.Spec.Containers[i].Name = []string{first, second}[i]
			}
			for want, annotations := range map[*string]map[string]string{&tt.read: {auto: "true"}, &tt.named: {configMaps.reload: "app-config"}} {
				got := nothing
				if c := configMap("app-config", nil).container(annotations, template); c != nil {
					got = c.Name
				}
				if got != *want {
					t.Errorf("with %v, container = %q, want %q", annotations, got, *want)
				}
			}
		})
	}
}
