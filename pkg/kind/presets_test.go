// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/dependency"
)

// presetObject is an object of a preset, and what is read of it.
type presetObject struct {
	object     string // metadata with the name web in the namespace shop and generation 2 is added
	references []string
	// states are what the rollout is with other parts of the object in place.
	states   map[string]presetState
	revision string
	restart  *dependency.Restart
	view     string // default: the kind in lower case
	viewOnly bool
}

type presetState struct {
	part string
	want dependency.Rollout
}

func running2(message string) dependency.Rollout {
	return dependency.Rollout{Phase: dependency.RolloutRunning, Reason: "PodsUpdating", Message: message}
}

func held(reason, message string) dependency.Rollout {
	return dependency.Rollout{Phase: dependency.RolloutHeld, Reason: reason, Message: message}
}

const (
	withDB = `
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: web:1
        env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]
`
	dbReference = "Secret/db Env app password"
)

var presetObjects = map[string]presetObject{
	"argo-rollout": {
		object: `
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  strategy: {canary: {steps: [{setWeight: 25}, {pause: {}}]}}
  template:` + withDB + `
status: {observedGeneration: "2", replicas: 4, updatedReplicas: 4, readyReplicas: 4, availableReplicas: 4, phase: Healthy, currentPodHash: 6f7d, stableRS: 6f7d}`,
		references: []string{dbReference}, revision: "6f7d",
		states: map[string]presetState{
			"done":         {"", complete},
			"not observed": {`status: {observedGeneration: "1"}`, unobserved},
			"a hash of an old version of Argo Rollouts is no generation": {`status: {observedGeneration: 7d9f5c}`, unobserved},
			"the first pod of a canary":                                  {`status: {replicas: 4, updatedReplicas: 1, phase: Progressing}`, running2("1 of 4 pods is up to date")},
			"a pause of a canary": {`status: {updatedReplicas: 1, phase: Paused}`,
				held("Paused", "1 of 4 pods is up to date, and .status.phase is Paused")},
			"before the promotion of a preview": {`status: {replicas: 8, phase: Paused}`,
				held("Paused", "4 old pods are pending termination, and .status.phase is Paused")},
			"paused by its owner": {"spec: {paused: true}\nstatus: {updatedReplicas: 0, phase: Paused}",
				held("Paused", "0 of 4 pods are up to date, and the workload is paused")},
			"aborted": {`status: {updatedReplicas: 1, phase: Degraded, abort: true}`,
				dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "Degraded", Message: ".status.phase is Degraded"}},
			"not available":     {`status: {availableReplicas: 2, phase: Progressing}`, running2("2 of 4 pods are available")},
			"not yet said done": {`status: {phase: Progressing}`, running2("it does not report that .status.phase is Healthy")},
		},
	},
	"knative-service": {
		object: `
spec:
  template:` + withDB + `
  traffic: [{latestRevision: true, percent: 100}]
status: {observedGeneration: 2, conditions: [{type: ConfigurationsReady, status: "True"}, {type: Ready, status: "True"}, {type: RoutesReady, status: "True"}]}`,
		references: []string{dbReference}, view: "knativeservice",
		states: map[string]presetState{
			"done":         {"", complete},
			"not observed": {`status: {observedGeneration: 1}`, unobserved},
			"deploying": {`status: {conditions: [{type: ConfigurationsReady, status: Unknown}, {type: Ready, status: Unknown}]}`,
				running2("it does not report that its condition Ready is True")},
			"failed": {`status: {conditions: [{type: ConfigurationsReady, status: "False", reason: RevisionFailed}, {type: Ready, status: "False"}]}`,
				dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "ConfigurationsReady", Message: "its condition ConfigurationsReady is False"}},
			"not reachable": {`status: {conditions: [{type: ConfigurationsReady, status: "True"}, {type: Ready, status: "False", reason: RevisionMissing}, {type: RoutesReady, status: "False", reason: RevisionMissing}]}`,
				dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "RoutesReady", Message: "its condition RoutesReady is False"}},
		},
	},
	"kruise-cloneset": {
		object: `
spec:
  replicas: 5
  selector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
  updateStrategy: {type: InPlaceIfPossible}
  template:` + withDB + `
status: {observedGeneration: 2, replicas: 5, readyReplicas: 5, availableReplicas: 5, updatedReplicas: 5, updatedReadyReplicas: 5, updateRevision: web-6f7d}`,
		references: []string{dbReference},
		states: map[string]presetState{
			"done":             {"", complete},
			"some are new":     {`status: {updatedReplicas: 2}`, running2("2 of 5 pods are up to date")},
			"old ones left":    {`status: {replicas: 6}`, running2("1 old pod is pending termination")},
			"at the partition": {"spec: {updateStrategy: {partition: 40%}}\nstatus: {updatedReplicas: 3}", held("Partition", "3 of 5 pods are up to date, and pods below the partition (2) are not updated")},
			"above it":         {"spec: {updateStrategy: {partition: 2}}\nstatus: {updatedReplicas: 1}", running2("1 of 3 pods is up to date, and pods below the partition (2) are not updated")},
			"paused":           {"spec: {updateStrategy: {paused: true}}\nstatus: {updatedReplicas: 1}", held("Paused", "1 of 5 pods is up to date, and the workload is paused")},
		},
	},
	"kruise-daemonset": {
		object: `
spec:
  selector: {matchLabels: {app: web}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: Surging}}
  template:` + withDB + `
status: {observedGeneration: 2, currentNumberScheduled: 3, desiredNumberScheduled: 3, numberAvailable: 3, numberReady: 3, updatedNumberScheduled: 3, daemonSetHash: 7c9}`,
		references: []string{dbReference}, revision: "7c9", view: "advanceddaemonset",
		states: map[string]presetState{
			"done":          {"", complete},
			"some are new":  {`status: {updatedNumberScheduled: 1}`, running2("1 of 3 pods is up to date")},
			"no nodes":      {`status: {currentNumberScheduled: 0, desiredNumberScheduled: 0, numberAvailable: 0, updatedNumberScheduled: 0}`, complete},
			"on delete":     {"spec: {updateStrategy: {type: OnDelete}}\nstatus: {updatedNumberScheduled: 1}", held("OnDelete", "1 of 3 pods is up to date, and .spec.updateStrategy.type is OnDelete")},
			"not available": {`status: {numberAvailable: 2}`, running2("2 of 3 pods are available")},
		},
	},
	"kruise-statefulset": {
		object: `
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  updateStrategy: {rollingUpdate: {podUpdatePolicy: ReCreate}}
  template:` + withDB + `
status: {observedGeneration: 2, replicas: 1, readyReplicas: 1, availableReplicas: 1, updatedReplicas: 1, updateRevision: web-6f7d}`,
		references: []string{dbReference}, revision: "web-6f7d", view: "advancedstatefulset",
		states: map[string]presetState{
			"done, with one replica by default": {"", complete},
			"none is new":                       {`status: {updatedReplicas: 0}`, running2("0 of 1 pod is up to date")},
			"scaled to zero":                    {"spec: {replicas: 0}\nstatus: {replicas: 0, updatedReplicas: 0, availableReplicas: 0}", complete},
		},
	},
	"leaderworkerset": {
		object: `
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    leaderTemplate: {spec: {containers: [{name: leader, envFrom: [{configMapRef: {name: leader}}]}]}}
    workerTemplate: {spec: {containers: [{name: worker, envFrom: [{configMapRef: {name: worker}}]}]}}
status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, updatedReplicas: 2, conditions: [{type: Available, status: "True"}]}`,
		references: []string{"ConfigMap/leader EnvFrom leader *", "ConfigMap/worker EnvFrom worker *"},
		restart:    &dependency.Restart{Template: []string{"spec", "leaderWorkerTemplate", "workerTemplate"}},
		states: map[string]presetState{
			"done":         {"", complete},
			"some are new": {`status: {updatedReplicas: 1}`, running2("1 of 2 pods is up to date")},
			"not ready":    {`status: {readyReplicas: 1}`, running2("1 of 2 pods is available")},
			"not observed": {`status: {observedGeneration: 1}`, unobserved},
			"just created": {`status: null`, unobserved},
			"a version that does not report what it has observed": {`status: {observedGeneration: null}`, complete},
		},
	},
	"openshift-deploymentconfig": {
		object: `
spec:
  replicas: 2
  selector: {app: web, deploymentconfig: web}
  triggers: [{type: ConfigChange}]
  template:` + withDB + `
status: {observedGeneration: 2, latestVersion: 3, replicas: 2, updatedReplicas: 2, availableReplicas: 2, readyReplicas: 2, conditions: [{type: Progressing, status: "True", reason: NewReplicationControllerAvailable}]}`,
		references: []string{dbReference},
		states: map[string]presetState{
			"done":   {"", complete},
			"paused": {"spec: {paused: true}\nstatus: {updatedReplicas: 0}", held("Paused", "0 of 2 pods are up to date, and the workload is paused")},
			"failed": {`status: {updatedReplicas: 0, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}`,
				dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "ProgressDeadlineExceeded", Message: "its condition Progressing is False (ProgressDeadlineExceeded)"}},
			"cancelled": {`status: {updatedReplicas: 0, conditions: [{type: Progressing, status: "False", reason: RolloutCancelled}]}`,
				dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "RolloutCancelled", Message: "its condition Progressing is False (RolloutCancelled)"}},
			"without a controller for its pods": {`status: {updatedReplicas: 0, conditions: [{type: Progressing, status: "False", reason: ReplicationControllerCreateError}]}`,
				dependency.Rollout{Phase: dependency.RolloutFailed, Reason: "ReplicationControllerCreateError", Message: "its condition Progressing is False (ReplicationControllerCreateError)"}},
			"waiting for the pod that deploys": {`status: {updatedReplicas: 0, conditions: [{type: Progressing, status: Unknown}]}`, running2("0 of 2 pods are up to date")},
		},
	},
	"ray-cluster": {
		object: `
spec:
  rayVersion: 2.46.0
  enableInTreeAutoscaling: true
  autoscalerOptions: {env: [{name: A, valueFrom: {configMapKeyRef: {name: autoscaler, key: a}}}], envFrom: [{secretRef: {name: autoscaler}}]}
  gcsFaultToleranceOptions: {redisAddress: redis:6379, redisUsername: {value: ray}, redisPassword: {valueFrom: {secretKeyRef: {name: redis, key: password}}}}
  authOptions: {mode: token, secretName: token}
  headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: ray-head, envFrom: [{secretRef: {name: head}}]}]}}}
  workerGroupSpecs:
  - {groupName: cpu, replicas: 2, template: {spec: {containers: [{name: ray-worker, envFrom: [{secretRef: {name: workers}}]}]}}}
  - {groupName: gpu, replicas: 1, template: {spec: {containers: [{name: ray-worker, envFrom: [{secretRef: {name: workers}}, {secretRef: {name: gpu}}]}]}}}
status: {state: ready}`,
		references: []string{
			"ConfigMap/autoscaler Object .spec.autoscalerOptions.env[*].valueFrom.configMapKeyRef.name a",
			"Secret/autoscaler Object .spec.autoscalerOptions.envFrom[*].secretRef.name *",
			"Secret/gpu EnvFrom ray-worker *", "Secret/head EnvFrom ray-head *",
			"Secret/redis Object .spec.gcsFaultToleranceOptions.redisPassword.valueFrom.secretKeyRef.name password",
			"Secret/token Object .spec.authOptions.secretName auth_token", "Secret/workers EnvFrom ray-worker *",
		},
		restart: &dependency.Restart{EventOnly: true},
		states:  map[string]presetState{"its status does not tell": {"", complete}},
	},
	"slurm-nodeset": {
		object: `
spec:
  replicas: 2
  slurmd:
    image: slurmd
    env:
    - {name: PLAIN, value: x}
    - {name: A, valueFrom: {secretKeyRef: {name: slurm, key: a}}}
    - {name: B, valueFrom: {configMapKeyRef: {name: settings, key: b}}}
    envFrom: [{secretRef: {name: all}}]
  ssh: {enabled: true, sssdConfRef: {name: sssd, key: sssd.conf}}
  template:` + withDB + `
status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, nodeSetHash: 5f6, selector: "app.kubernetes.io/instance=web,app.kubernetes.io/name=slurmd"}`,
		references: []string{
			"ConfigMap/settings Object .spec.slurmd.env[*].valueFrom.configMapKeyRef.name b", "Secret/all Object .spec.slurmd.envFrom[*].secretRef.name *", dbReference,
			"Secret/slurm Object .spec.slurmd.env[*].valueFrom.secretKeyRef.name a", "Secret/sssd Object .spec.ssh.sssdConfRef.name sssd.conf",
		},
		revision: "5f6", view: "nodeset",
		states: map[string]presetState{
			"done":       {"", complete},
			"draining":   {`status: {updatedReplicas: 1}`, running2("1 of 2 pods is up to date")},
			"no status":  {`status: null`, unobserved},
			"odd status": {`status: [1, 2]`, unobserved},
		},
	},
	"strimzi-podset": {
		object: `
spec:
  selector: {matchLabels: {strimzi.io/name: web-kafka}}
  pods:
  - apiVersion: v1
    kind: Pod
    metadata: {name: web-0, annotations: {strimzi.io/revision: a1}}
    spec: {volumes: [{name: certs, secret: {secretName: web-0}}], containers: [{name: kafka, volumeMounts: [{name: certs, mountPath: /certs}], envFrom: [{configMapRef: {name: common}}]}]}
  - apiVersion: v1
    kind: Pod
    metadata: {name: web-1, annotations: {strimzi.io/revision: a1}}
    spec: {volumes: [{name: certs, secret: {secretName: web-1}}], containers: [{name: kafka, volumeMounts: [{name: certs, mountPath: /certs}], envFrom: [{configMapRef: {name: common}}]}]}
status: {observedGeneration: 2, pods: 2, readyPods: 2, currentPods: 2}`,
		references: []string{"ConfigMap/common EnvFrom kafka *", "Secret/web-0 Volume kafka /certs *", "Secret/web-1 Volume kafka /certs *"},
		viewOnly:   true,
		states:     map[string]presetState{"its status does not count": {"", complete}},
	},
}

// ofPreset returns the kind that a preset describes.
func ofPreset(t testing.TB, name string) *Kind {
	t.Helper()
	return mustNew(t, presets[slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })].Descriptor)
}

// objectOf returns an object of a kind in JSON, with some parts replaced.
func objectOf(t *testing.T, k *Kind, texts ...string) []byte {
	t.Helper()
	object := map[string]any{
		"apiVersion": k.GroupVersionKind().GroupVersion().String(), "kind": k.GroupVersionKind().Kind,
		"metadata": map[string]any{"name": "web", "namespace": "shop", "generation": 2, "uid": "u"},
	}
	for _, text := range texts {
		var part map[string]any
		if err := yaml.Unmarshal([]byte(text), &part); err != nil {
			t.Fatal(err)
		}
		merge(object, part)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func merge(into, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		if before, found := into[key].(map[string]any); found && isMap {
			merge(before, inner)
		} else {
			into[key] = value
		}
	}
}

func decode(t testing.TB, k *Kind, raw []byte) (Object, *dependency.Object) {
	t.Helper()
	o, err := k.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	read, err := k.Read(o)
	if err != nil {
		t.Fatal(err)
	}
	return o, read
}

// usesOf returns what a workload consumes, a line for each use.
func usesOf(w *dependency.Workload) (out []string) {
	for _, r := range w.References {
		for _, u := range r.Uses {
			words := []string{string(r.Kind) + "/" + r.Name, string(u.Type), u.Container, u.MountPath, "*"}
			if u.Keys != nil {
				words[4] = strings.Join(u.Keys, ",")
			}
			out = append(out, strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " "))
		}
	}
	return out
}

func TestPresets(t *testing.T) {
	var names []string
	shown := map[dependency.WorkloadKind]bool{}
	for _, p := range Presets() {
		names = append(names, p.Name)
		k := ofPreset(t, p.Name)
		if shown[k.Name] {
			t.Fatalf("%s: a kind with the name of another", p.Name)
		}
		shown[k.Name] = true
		t.Run(p.Name, func(t *testing.T) {
			tt, found := presetObjects[p.Name]
			if !found || len(tt.states) == 0 {
				t.Fatal("there is no object of it")
			}
			_, read := decode(t, k, objectOf(t, k, tt.object))
			w := dependency.NewWorkload(read, dependency.Annotations{})
			if diff := cmp.Diff(tt.references, usesOf(w)); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
			view := tt.view
			if view == "" {
				view = strings.ToLower(p.Descriptor.Kind)
			}
			if got := w.ViewName(); got != view+".web" || w.Rollable == tt.viewOnly || k.GroupVersionKind().Kind != p.Descriptor.Kind {
				t.Errorf("%s, rollable: %v, kind %s", got, w.Rollable, k.GroupVersionKind())
			}
			if diff := cmp.Diff(tt.restart, w.Restart); diff != "" {
				t.Errorf("restart (-want +got):\n%s", diff)
			}
			if w.UnknownPods {
				t.Error("its pods cannot be looked up")
			}
			if got := w.TemplateRevision; got != tt.revision {
				t.Errorf("revision = %s, want %s", got, tt.revision)
			}
			for name, state := range tt.states {
				_, read := decode(t, k, objectOf(t, k, tt.object, state.part))
				if diff := cmp.Diff(state.want, read.Rollout); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
	if !slices.IsSorted(names) || len(names) != len(presetObjects) {
		t.Errorf("presets = %v", names)
	}
}

// Knative refuses another template under the name of a revision.
func TestPresets_NotReloaded(t *testing.T) {
	for preset, part := range map[string]string{
		"knative-service": "spec: {template: {metadata: {name: web-v1}}}",
	} {
		k, tt := ofPreset(t, preset), presetObjects[preset]
		_, read := decode(t, k, objectOf(t, k, tt.object, part))
		if w := dependency.NewWorkload(read, dependency.Annotations{}); w.Rollable || !k.Traits.Rollable {
			t.Errorf("%s: rollable: %v, the kind: %v", preset, w.Rollable, k.Traits.Rollable)
		}
	}
}

// Where pods are updated in place, or a rollout is started by hand, annotations of the pod template replace no pods.
func TestPresets_KeepPods(t *testing.T) {
	for _, tt := range []struct{ preset, part, want string }{
		{"argo-rollout", "", ""},
		{"kruise-cloneset", "spec: {updateStrategy: null}", ""},
		{"kruise-cloneset", "spec: {updateStrategy: {type: ReCreate}}", ""},
		{"kruise-cloneset", "spec: {updateStrategy: {type: InPlaceIfPossible}}", ".spec.updateStrategy.type is InPlaceIfPossible"},
		{"kruise-cloneset", "spec: {updateStrategy: {type: InPlaceOnly}}", ".spec.updateStrategy.type is InPlaceOnly"},
		{"kruise-daemonset", "", ""},
		{"kruise-daemonset", "spec: {updateStrategy: {rollingUpdate: {rollingUpdateType: InPlaceIfPossible}}}", ".spec.updateStrategy.rollingUpdate.rollingUpdateType is InPlaceIfPossible"},
		{"kruise-statefulset", "", ""},
		{"kruise-statefulset", "spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}}", ".spec.updateStrategy.rollingUpdate.podUpdatePolicy is InPlaceIfPossible"},
		{"kruise-statefulset", "spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly}}}", ".spec.updateStrategy.rollingUpdate.podUpdatePolicy is InPlaceOnly"},
		{"openshift-deploymentconfig", "", ""},
		{"openshift-deploymentconfig", "spec: {triggers: [{type: ImageChange, imageChangeParams: {}}, {type: ConfigChange}]}", ""},
		{"openshift-deploymentconfig", "spec: {triggers: [{type: ImageChange, imageChangeParams: {}}]}", ".spec.triggers[*].type is not ConfigChange"},
		{"openshift-deploymentconfig", "spec: {triggers: []}", ".spec.triggers[*].type is not ConfigChange"},
	} {
		k := ofPreset(t, tt.preset)
		_, read := decode(t, k, objectOf(t, k, presetObjects[tt.preset].object, tt.part))
		if got := read.Traits.KeepsPods; got != tt.want {
			t.Errorf("%s, %s: %q, want %q", tt.preset, tt.part, got, tt.want)
		}
		if !read.Traits.Rollable || k.Traits.KeepsPods != "" {
			t.Errorf("%s, %s: rollable: %v, the kind: %q", tt.preset, tt.part, read.Traits.Rollable, k.Traits.KeepsPods)
		}
	}
}

// A Rollout may have the template of another workload. A restart is then a field of its own.
func TestPresets_TemplateOfAnother(t *testing.T) {
	k, tt := ofPreset(t, "argo-rollout"), presetObjects["argo-rollout"]
	for part, want := range map[string]*dependency.TemplateReference{
		"spec: {template: null, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}}": {APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		"spec: {workloadRef: {apiVersion: example.com/v1, kind: Thing, name: web}}":               {APIVersion: "example.com/v1", Kind: "Thing", Name: "web"},
		"spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment}}":                            nil,
		"spec: {workloadRef: odd}": nil,
	} {
		o, _ := decode(t, k, objectOf(t, k, tt.object, part))
		read, err := k.Read(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read.TemplateFrom); diff != "" {
			t.Errorf("%s (-want +got):\n%s", part, diff)
		}
		if read.Traits.UnknownPods { // its ReplicaSets have its name
			t.Errorf("%s: its pods cannot be looked up", part)
		}
		restart := read.Traits.Restart
		if byField := restart != nil && slices.Equal(restart.Field, []string{"spec", "restartAt"}); byField != (want != nil) {
			t.Errorf("%s: restart = %+v", part, restart)
		}
		Table(nil).Relate(read)
		known := want != nil && want.Kind == "Deployment"
		if (read.TemplateOf != nil) != known || known && (read.TemplateOf.Name != "web" || read.TemplateOf.Namespace != read.Meta.Namespace) {
			t.Errorf("%s: the template of %v", part, read.TemplateOf)
		}
	}
}

// All kinds of descriptors have one Go type.
func TestTable_OfObject(t *testing.T) {
	rollout, service := ofPreset(t, "argo-rollout"), ofPreset(t, "knative-service")
	table := Table{deployment, rollout, service, pod}
	o, _ := decode(t, service, objectOf(t, service, presetObjects["knative-service"].object))
	for want, o := range map[*Kind]runtime.Object{service: o, rollout: rollout.New(), pod: pod.New()} {
		if got := table.OfObject(o); got != want {
			t.Errorf("%v, want %s", got, want.Name)
		}
	}
	if got := (Table{rollout}).OfObject(o); got != nil {
		t.Errorf("%s: it is not in the table", got.Name)
	}
	if _, err := rollout.Read(o); err == nil {
		t.Error("no error for an object of another kind")
	}
	if got := table.OfGroupKind(service.GroupVersionKind().GroupKind()); got != service {
		t.Errorf("%v", got)
	}
}
