// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// projects are the definitions of other projects, by the names of their files in testdata. The files have what the definitions say of fields,
// defaults and subresources, so that the API server stores and refuses what it would with the real ones.
var projects = map[string]definition{
	"argo-rollout":               {group: "argoproj.io", kind: "Rollout", plural: "rollouts"},
	"harborcluster":              {group: "goharbor.io", kind: "HarborCluster", plural: "harborclusters"},
	"knative-service":            {group: "serving.knative.dev", kind: "Service", plural: "services"},
	"kruise-cloneset":            {group: "apps.kruise.io", kind: "CloneSet", plural: "clonesets"},
	"kruise-daemonset":           {group: "apps.kruise.io", kind: "DaemonSet", plural: "daemonsets"},
	"kruise-statefulset":         {group: "apps.kruise.io", kind: "StatefulSet", plural: "statefulsets"},
	"leaderworkerset":            {group: "leaderworkerset.x-k8s.io", kind: "LeaderWorkerSet", plural: "leaderworkersets"},
	"openshift-deploymentconfig": {group: "apps.openshift.io", kind: "DeploymentConfig", plural: "deploymentconfigs"},
	"ray-cluster":                {group: "ray.io", kind: "RayCluster", plural: "rayclusters"},
	"slurm-nodeset":              {group: "slinky.slurm.net", kind: "NodeSet", plural: "nodesets"},
	"strimzi-podset":             {group: "core.strimzi.io", kind: "StrimziPodSet", plural: "strimzipodsets"},
}

// project returns the definition of another project, with its kind in configdep.
func project(name string) definition {
	d := projects[name]
	if slices.Contains(kind.PresetNames(), name) {
		d.as = string(workloadtest.Preset(name).Name)
	}
	return d
}

func fromYAML(t *testing.T, text string) content {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out content
	if err := json.Unmarshal(data, &out); err != nil { // with integers
		t.Fatal(err)
	}
	return out
}

// preset is an object of a kind of another project, and what happens to it.
type preset struct {
	// version is the one in which configdep reads and writes it.
	version string
	// spec is a specification as users write it.
	spec string
	// uses are what it consumes, a line for each use.
	uses []string
	// template is where the pod template is whose annotations restart it; nil: nothing restarts it.
	template []string
	// done is the status when all pods are up to date, and settled is what the view shows then.
	done    string
	settled v1alpha1.State
	// after is the reason that is shown when it has been restarted, and its controller has not reacted yet.
	after string
	// untouched: nothing of the object is ever written.
	untouched bool
}

// podSpec is a pod that reads sources in each of the usual ways.
const podSpec = `
serviceAccountName: web
initContainers:
- {name: prepare, image: "web:1", envFrom: [{secretRef: {name: init}}]}
containers:
- name: app
  image: web:1
  env:
  - {name: PLAIN, value: x}
  - {name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
  - {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level, optional: true}}}
  envFrom: [{prefix: SET_, configMapRef: {name: common}}]
  volumeMounts: [{name: certs, mountPath: /certs, readOnly: true}, {name: all, mountPath: /all}]
volumes:
- {name: certs, secret: {secretName: certs}}
- name: all
  projected: {sources: [{configMap: {name: settings, items: [{key: app.conf, path: app.conf}]}}, {secret: {name: db, items: [{key: user, path: user}]}}]}
- {name: scratch, emptyDir: {}}
`

// podUses are what podSpec reads.
var podUses = []string{
	"ConfigMap/common EnvFrom app",
	"ConfigMap/settings Env app LEVEL level", "ConfigMap/settings Projected app /all app.conf",
	"Secret/certs Volume app /certs",
	"Secret/db Env app PASSWORD password", "Secret/db Projected app /all user",
	"Secret/init EnvFrom prepare",
}

// podAt returns podSpec as the value of a field, indented by some spaces.
func podAt(spaces int) string {
	return strings.ReplaceAll(strings.TrimSuffix(podSpec, "\n"), "\n", "\n"+strings.Repeat(" ", spaces))
}

var specTemplate = []string{"spec", "template"}

var presets = map[string]preset{
	"argo-rollout": {
		version: "v1alpha1", template: specTemplate, uses: podUses,
		spec: `
replicas: 2
selector: {matchLabels: {app: web}}
strategy: {canary: {maxSurge: 25%, steps: [{setWeight: 50}, {pause: {}}]}}
template:
  metadata: {labels: {app: web}}
  spec:` + podAt(4),
		done: `
observedGeneration: $(generation as text)
phase: Healthy
message: ""
replicas: 2
updatedReplicas: 2
readyReplicas: 2
availableReplicas: 2
HPAReplicas: 2
currentPodHash: 6f7d9c5b4
stableRS: 6f7d9c5b4
currentStepIndex: 2
pauseConditions: null
controllerPause: null
conditions:
- {type: Available, status: "True", reason: AvailableReason, message: Rollout has minimum availability, lastTransitionTime: "2026-01-01T00:00:00Z", lastUpdateTime: "2026-01-01T00:00:00Z"}
- {type: Healthy, status: "True", reason: RolloutHealthy, message: Rollout is healthy, lastTransitionTime: "2026-01-01T00:00:00Z", lastUpdateTime: "2026-01-01T00:00:00Z"}
- {type: Progressing, status: "True", reason: NewReplicaSetAvailable, message: done, lastTransitionTime: "2026-01-01T00:00:00Z", lastUpdateTime: "2026-01-01T00:00:00Z"}
`,
		after: "NotObserved",
	},
	"knative-service": {
		version: "v1", template: specTemplate, uses: podUses,
		spec: `
template:
  metadata: {annotations: {autoscaling.knative.dev/min-scale: "1"}}
  spec:
    timeoutSeconds: 300` + podAt(4),
		done: `
observedGeneration: $(generation)
latestCreatedRevisionName: web-00001
latestReadyRevisionName: web-00001
url: http://web.example.com
conditions:
- {type: ConfigurationsReady, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: RoutesReady, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}
traffic: [{latestRevision: true, percent: 100, revisionName: web-00001}]
`,
		after: "NotObserved",
	},
	"kruise-cloneset": {
		version: "v1alpha1", template: specTemplate, uses: podUses,
		spec: `
replicas: 3
selector: {matchLabels: {app: web}}
updateStrategy: {type: ReCreate, maxUnavailable: 1}
template:
  metadata: {labels: {app: web}}
  spec:` + podAt(4),
		done:  `{observedGeneration: $(generation), replicas: 3, readyReplicas: 3, availableReplicas: 3, updatedReplicas: 3, updatedReadyReplicas: 3, updatedAvailableReplicas: 3, expectedUpdatedReplicas: 3, updateRevision: web-6f7d, currentRevision: web-6f7d, labelSelector: app=web, conditions: null}`,
		after: "NotObserved",
	},
	"kruise-daemonset": {
		version: "v1alpha1", template: specTemplate, uses: podUses,
		spec: `
selector: {matchLabels: {app: web}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: Standard, maxUnavailable: 1}}
template:
  metadata: {labels: {app: web}}
  spec:` + podAt(4),
		done:  `{observedGeneration: $(generation), daemonSetHash: 7c9, currentNumberScheduled: 2, desiredNumberScheduled: 2, numberAvailable: 2, numberMisscheduled: 0, numberReady: 2, updatedNumberScheduled: 2}`,
		after: "NotObserved",
	},
	"kruise-statefulset": {
		version: "v1beta1", template: specTemplate, uses: podUses,
		spec: `
replicas: 2
serviceName: web
podManagementPolicy: OrderedReady
selector: {matchLabels: {app: web}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: ReCreate, maxUnavailable: 1, partition: 0, minReadySeconds: 0}}
template:
  metadata: {labels: {app: web}}
  spec:` + podAt(4),
		done:  `{observedGeneration: $(generation), replicas: 2, readyReplicas: 2, availableReplicas: 2, currentReplicas: 2, updatedReplicas: 2, updatedReadyReplicas: 2, currentRevision: web-6f7d, updateRevision: web-6f7d, labelSelector: app=web}`,
		after: "NotObserved",
	},
	"leaderworkerset": {
		version: "v1", template: []string{"spec", "leaderWorkerTemplate", "workerTemplate"},
		uses: append([]string{"ConfigMap/common EnvFrom leader"}, podUses...),
		spec: `
replicas: 2
networkConfig: {subdomainPolicy: Shared}
rolloutStrategy: {type: RollingUpdate, rollingUpdateConfiguration: {maxUnavailable: 1, maxSurge: 0, partition: 0}}
leaderWorkerTemplate:
  size: 4
  restartPolicy: RecreateGroupOnPodRestart
  leaderTemplate: {metadata: {labels: {role: leader}}, spec: {containers: [{name: leader, image: "web:1", envFrom: [{configMapRef: {name: common}}]}]}}
  workerTemplate:
    spec:` + podAt(6),
		done: `
replicas: 2
readyReplicas: 2
updatedReplicas: 2
hpaPodSelector: leaderworkerset.sigs.k8s.io/name=web,leaderworkerset.sigs.k8s.io/worker-index=0
conditions: [{type: Available, status: "True", reason: AllGroupsReady, message: All replicas are ready, lastTransitionTime: "2026-01-01T00:00:00Z"}]
`,
	},
	"openshift-deploymentconfig": {
		version: "v1", template: specTemplate, uses: podUses,
		spec: `
replicas: 2
selector: {app: web, deploymentconfig: web}
strategy: {type: Rolling, rollingParams: {timeoutSeconds: 600}}
template:
  metadata: {labels: {app: web, deploymentconfig: web}}
  spec:` + podAt(4),
		done: `
observedGeneration: $(generation)
latestVersion: 1
replicas: 2
updatedReplicas: 2
availableReplicas: 2
readyReplicas: 2
unavailableReplicas: 0
conditions:
- {type: Available, status: "True", message: Deployment config has minimum availability., lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Progressing, status: "True", reason: NewReplicationControllerAvailable, lastTransitionTime: "2026-01-01T00:00:00Z"}
`,
		after: "NotObserved",
	},
	"ray-cluster": {
		version: "v1",
		uses: append([]string{
			"ConfigMap/common EnvFrom ray-head", "Secret/gpu EnvFrom ray-worker",
		}, podUses...),
		spec: `
rayVersion: 2.46.0
headGroupSpec:
  rayStartParams: {dashboard-host: 0.0.0.0}
  template: {spec: {containers: [{name: ray-head, image: "ray:1", envFrom: [{configMapRef: {name: common}}]}]}}
workerGroupSpecs:
- groupName: cpu
  replicas: 2
  minReplicas: 1
  maxReplicas: 3
  rayStartParams: {}
  template:
    spec:` + podAt(6) + `
- {groupName: gpu, replicas: 1, minReplicas: 0, maxReplicas: 1, rayStartParams: {}, template: {spec: {containers: [{name: ray-worker, image: "ray:1", envFrom: [{secretRef: {name: gpu}}]}]}}}`,
		done: `
state: ready
observedGeneration: $(generation)
desiredWorkerReplicas: 3
readyWorkerReplicas: 3
availableWorkerReplicas: 3
conditions:
- {type: RayClusterProvisioned, status: "True", reason: AllPodRunningAndReadyFirstTime, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: HeadPodReady, status: "True", reason: HeadPodRunningAndReady, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
`,
	},
	"slurm-nodeset": {
		version: "v1beta1", template: specTemplate,
		uses: append([]string{
			"ConfigMap/common Object .spec.logfile.envFrom[*].configMapRef.name",
			"ConfigMap/settings Object .spec.slurmd.env[*].valueFrom.configMapKeyRef.name level",
			"Secret/init Object .spec.slurmd.envFrom[*].secretRef.name",
			"Secret/sssd Object .spec.ssh.sssdConfRef.name sssd.conf",
		}, podUses...),
		spec: `
controllerRef: {name: slurm}
replicas: 2
slurmd: {image: "slurmd:1", env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}], envFrom: [{secretRef: {name: init}}], resources: {limits: {cpu: "1"}}}
logfile: {image: "alpine:1", envFrom: [{configMapRef: {name: common}}]}
ssh: {enabled: true, sssdConfRef: {name: sssd, key: sssd.conf}}
template:
  metadata: {annotations: null}
  spec:` + podAt(4),
		done: `
observedGeneration: $(generation)
nodeSetHash: 5f6
selector: app.kubernetes.io/instance=web,app.kubernetes.io/name=slurmd
desired: 2
replicas: 2
updatedReplicas: 2
readyReplicas: 2
availableReplicas: 2
slurmIdle: 2
`,
		after: "NotObserved",
	},
	"strimzi-podset": {
		version: "v1beta2", untouched: true, settled: v1alpha1.StateInSync,
		uses: append([]string{"Secret/gpu Volume kafka /certs"}, podUses...),
		spec: `
selector: {matchLabels: {strimzi.io/cluster: web, strimzi.io/kind: Kafka, strimzi.io/name: web-kafka}}
pods:
- apiVersion: v1
  kind: Pod
  metadata: {name: web-kafka-0, labels: {strimzi.io/name: web-kafka}, annotations: {strimzi.io/revision: a1}}
  spec:` + podAt(4) + `
- apiVersion: v1
  kind: Pod
  metadata: {name: web-kafka-1, labels: {strimzi.io/name: web-kafka}, annotations: {strimzi.io/revision: a1}}
  spec: {volumes: [{name: certs, secret: {secretName: gpu}}], containers: [{name: kafka, image: "kafka:1", volumeMounts: [{name: certs, mountPath: /certs}]}]}`,
		done: `{observedGeneration: $(generation), pods: 2, readyPods: 2, currentPods: 2, conditions: []}`,
	},
	// Not a preset, but the example of the documents.
	"harborcluster": {
		version: "v1beta1",
		uses: []string{
			"Secret/certs Object .spec.harborAdminPasswordRef secret", "Secret/db Object .spec.database.spec.postgresql.passwordRef",
			"Secret/gpu Object .spec.storage.spec.s3.secretkeyRef",
		},
		spec: `
version: 2.5.1
externalURL: https://registry.example.com
harborAdminPasswordRef: certs
expose: {core: {tls: {certificateRef: sssd}}}
core: {replicas: 1, tokenIssuer: {name: issuer, kind: Issuer}}
jobservice: {replicas: 1}
registry: {replicas: 1}
cache: {kind: Redis, spec: {redis: {host: redis, port: 6379}}}
database: {kind: PostgreSQL, spec: {postgresql: {username: harbor, passwordRef: db, hosts: [{host: postgres, port: 5432}]}}}
storage: {kind: S3, spec: {s3: {accesskey: AKIA, secretkeyRef: gpu, region: here, bucket: registry}}}`,
		done: `{status: healthy, revision: 1767225600000000000, conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
	},
}

// sources creates all that the objects of presets consume, with keys that they do not read.
func (p *kindShop) sources() {
	p.Helper()
	p.write("Secret/db", "password", "one", "user", "one", "unread", "one")
	p.write("Secret/certs", "tls.crt", "one", "secret", "one")
	p.write("Secret/init", "token", "one")
	p.write("Secret/gpu", "token", "one")
	p.write("Secret/sssd", "sssd.conf", "one")
	for name, data := range map[string]string{"settings": "level", "common": "a"} {
		p.write(ref("ConfigMap/"+name), data, "one", "app.conf", "one")
	}
}

// usage returns a use in one line.
func usage(s *v1alpha1.Source, u *v1alpha1.Usage) string {
	words := []string{string(s.Kind) + "/" + s.Name, string(u.Type), u.Container, u.Env, u.MountPath, u.Path, strings.Join(u.Keys, ",")}
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
}

// bare returns what an object is without what the API server and configdep write, and what they write to the template.
func bare(t *testing.T, o *unstructured.Unstructured, template []string) content {
	t.Helper()
	o = o.DeepCopy()
	ours := func(key, _ string) bool {
		return strings.HasPrefix(key, "configdep.io/") && key != policy.ReloadAnnotation
	}
	strip := func(at ...string) {
		if value, found, _ := unstructured.NestedFieldNoCopy(o.Object, at...); found && value == nil {
			unstructured.RemoveNestedField(o.Object, at...)
		}
		annotations, _, err := unstructured.NestedStringMap(o.Object, at...)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(annotations, ours)
		if len(annotations) > 0 {
			if err := unstructured.SetNestedStringMap(o.Object, annotations, at...); err != nil {
				t.Fatal(err)
			}
			return
		}
		unstructured.RemoveNestedField(o.Object, at...)
		if metadata, _, _ := unstructured.NestedMap(o.Object, at[:len(at)-1]...); len(metadata) == 0 {
			unstructured.RemoveNestedField(o.Object, at[:len(at)-1]...)
		}
	}
	strip("metadata", "annotations")
	if template != nil {
		strip(append(slices.Clone(template), "metadata", "annotations")...)
	}
	for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	delete(o.Object, "status")
	return o.Object
}

// Each preset is tried with a definition that has the fields, defaults and validations of the real one, and with a controller that
// reports what the real one would.
func TestKinds_Presets(t *testing.T) {
	t.Parallel()
	for _, p := range kind.Presets() {
		if _, found := presets[p.Name]; !found {
			t.Errorf("%s is not tested", p.Name)
		}
	}
	for name, tt := range presets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.check(newKindShop(t), project(name))
		})
	}
}

func (tt *preset) check(p *kindShop, d definition) {
	t := p.T
	p.sources()
	created := p.createObject(d, tt.version, auto, fromYAML(t, tt.spec))
	p.status(d, tt.version, fromYAML(t, tt.done))
	settled := tt.settled
	if settled == "" {
		settled = v1alpha1.StateInSync
	}
	checks := []func(*v1alpha1.ConfigDependency) error{is(settled, "")}
	if !tt.untouched {
		checks = append(checks, recorded)
	}
	shown := p.shown(d, checks...)
	if want := d.group + "/" + tt.version; shown.Spec.WorkloadRef.APIVersion != want || shown.Spec.WorkloadRef.Kind != d.kind {
		t.Errorf("workload = %+v, want %s %s", shown.Spec.WorkloadRef, want, d.kind)
	}
	var uses []string
	for i := range shown.Spec.Sources {
		for j := range shown.Spec.Sources[i].Usages {
			uses = append(uses, usage(&shown.Spec.Sources[i], &shown.Spec.Sources[i].Usages[j]))
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(tt.uses)), slices.Sorted(slices.Values(uses))); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
	generation := created.GetGeneration()
	// restart checks that a change has restarted the object once, and changed nothing else of it.
	restart := func() {
		t.Helper()
		shown = p.shown(d, append(checks[1:], newer(shown))...)
		if tt.template != nil {
			generation++
		}
		now := p.get(d, tt.version)
		if diff := cmp.Diff(bare(t, created, tt.template), bare(t, now, tt.template)); diff != "" {
			t.Errorf("the object was changed (-before +after):\n%s", diff)
		}
		if now.GetGeneration() != generation {
			t.Errorf("generation = %d, want %d", now.GetGeneration(), generation)
		}
		if tt.template == nil {
			return
		}
		at := append(slices.Clone(tt.template), "metadata", "annotations", record.ConfigHashAnnotation)
		if hash, _, _ := unstructured.NestedString(now.Object, at...); hash != shown.Status.ConfigHash {
			t.Errorf("hash on the template = %q, want %s", hash, shown.Status.ConfigHash)
		}
	}
	p.write("Secret/db", "unread", "two")
	p.write("Secret/db", "password", "two")
	restart()
	if tt.after != "" {
		p.shown(d, is(v1alpha1.StateRollingOut, tt.after))
	}
	p.status(d, tt.version, fromYAML(t, tt.done))
	p.shown(d, is(settled, ""))

	if !tt.readsSettings() {
		p.write("Secret/gpu", "token", "two")
	} else {
		p.write("ConfigMap/settings", "app.conf", "two")
	}
	restart()
	if tt.template == nil && !tt.untouched {
		if message := p.event(d, "ConfigChanged"); !strings.Contains(message, "has changed") {
			t.Errorf("message = %s", message)
		}
	}
	now := p.get(d, tt.version)
	if now.GetGeneration() != generation {
		t.Errorf("generation = %d, want %d", now.GetGeneration(), generation)
	}
	if tt.untouched {
		for _, entry := range now.GetManagedFields() {
			if strings.Contains(entry.Manager, "configdep") {
				t.Errorf("the object was written: %+v", entry)
			}
		}
	}
}

func (tt *preset) readsSettings() bool {
	return slices.ContainsFunc(tt.uses, func(use string) bool { return strings.HasPrefix(use, "ConfigMap/settings ") })
}
