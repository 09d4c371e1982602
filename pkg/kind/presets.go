// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
)

// Preset is a descriptor that comes with configdep.
type Preset struct {
	// Name is how flags and values name it.
	Name       string
	Descriptor Descriptor
}

const (
	specTemplate       = ".spec.template"
	specReplicas       = ".spec.replicas"
	specPaused         = ".spec.paused"
	observedGeneration = ".status.observedGeneration"
	statusReplicas     = ".status.replicas"
	statusUpdated      = ".status.updatedReplicas"
	statusAvailable    = ".status.availableReplicas"
	progressing        = "Progressing"
	deadlineReason     = "ProgressDeadlineExceeded"
	revisionHash       = "controller-revision-hash"
	updateRevision     = ".status.updateRevision"
	partitionOfRolling = ".spec.updateStrategy.rollingUpdate.partition"
	pausedOfRolling    = ".spec.updateStrategy.rollingUpdate.paused"
)

var (
	onTemplate    = Reload{By: ByTemplateAnnotation}
	inTemplate    = []TemplatePath{{Path: specTemplate}}
	whileOnDelete = []StatusTest{{Path: ".spec.updateStrategy.type", Value: "OnDelete"}}
)

// presets describe custom resources of other projects, as of the versions that their comments name. They are in the order of their names.
var presets = []Preset{
	// Argo Rollouts 1.8.3.
	{"argo-rollout", Descriptor{
		Group: "argoproj.io", Kind: "Rollout", Resource: "rollouts", Versions: []string{"v1alpha1"},
		PodTemplates: inTemplate,
		Pods: &Pods{
			Controller: ControlledByReplicaSet, RevisionLabel: "rollouts-pod-template-hash", Revision: ".status.currentPodHash",
		},
		Reload: onTemplate, RestartAt: true,
		TemplateFrom: &TemplateFrom{APIVersion: ".spec.workloadRef.apiVersion", Kind: ".spec.workloadRef.kind", Name: ".spec.workloadRef.name"},
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, // a text
			Replicas:           specReplicas, Total: statusReplicas, Updated: statusUpdated, Ready: statusAvailable, Paused: specPaused,
			Failed:   []StatusTest{{Path: ".status.phase", Value: "Degraded"}},
			Held:     []StatusTest{{Path: ".status.phase", Value: "Paused"}}, // a step of a canary, or before a promotion
			Complete: []StatusTest{{Path: ".status.phase", Value: "Healthy"}},
		},
	}},
	// Knative Serving, knative.dev/serving 0.51. Old revisions have pods as long as a route sends them traffic.
	{"knative-service", Descriptor{
		Group: "serving.knative.dev", Kind: "Service", Alias: "KnativeService", Resource: "services", Versions: []string{"v1"},
		PodTemplates: inTemplate,
		Pods:         &Pods{Labels: map[string]string{"serving.knative.dev/service": nameVariable}, Controller: ControlledByAny},
		// A template with a name is that of one revision: Knative refuses a change of it without another name.
		Reload: Reload{By: ByTemplateAnnotation, Unless: ".spec.template.metadata.name"},
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration,
			// What may pass by itself is Unknown. Once a change is observed, these are no longer about the one before.
			Failed:   []StatusTest{{Condition: "ConfigurationsReady", Status: "False"}, {Condition: "RoutesReady", Status: "False"}},
			Complete: []StatusTest{{Condition: "Ready"}},
		},
	}},
	// OpenKruise 1.8. An update in place copies changed annotations to the pods that run, and restarts nothing.
	{"kruise-cloneset", Descriptor{
		Group: "apps.kruise.io", Kind: "CloneSet", Resource: "clonesets", Versions: []string{"v1alpha1", "v1beta1"},
		PodTemplates: inTemplate,
		Pods:         &Pods{},
		Reload:       onTemplateUnless(updatesInPlace(".spec.updateStrategy.type")...),
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, Replicas: specReplicas, Total: statusReplicas, Updated: statusUpdated, Ready: statusAvailable,
			Paused: ".spec.updateStrategy.paused", Partition: ".spec.updateStrategy.partition",
		},
	}},
	{"kruise-daemonset", Descriptor{
		Group: "apps.kruise.io", Kind: "DaemonSet", Alias: "AdvancedDaemonSet", Resource: "daemonsets", Versions: []string{"v1alpha1", "v1beta1"},
		PodTemplates: inTemplate, PerNode: true,
		Pods:   &Pods{RevisionLabel: revisionHash, Revision: ".status.daemonSetHash"},
		Reload: onTemplateUnless(updatesInPlace(".spec.updateStrategy.rollingUpdate.rollingUpdateType")...),
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, Replicas: ".status.desiredNumberScheduled",
			Updated: ".status.updatedNumberScheduled", Ready: ".status.numberAvailable",
			Paused: pausedOfRolling, Partition: partitionOfRolling, Held: whileOnDelete,
		},
	}},
	{"kruise-statefulset", Descriptor{
		Group: "apps.kruise.io", Kind: "StatefulSet", Alias: "AdvancedStatefulSet", Resource: "statefulsets", Versions: []string{"v1beta1"},
		PodTemplates: inTemplate,
		Pods:         &Pods{RevisionLabel: revisionHash, Revision: updateRevision},
		Reload:       onTemplateUnless(updatesInPlace(".spec.updateStrategy.rollingUpdate.podUpdatePolicy")...),
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, Replicas: specReplicas, Total: statusReplicas, Updated: statusUpdated, Ready: statusAvailable,
			Paused: pausedOfRolling, Partition: partitionOfRolling, Held: whileOnDelete,
		},
	}},
	// LeaderWorkerSet 0.7. Its status counts groups of pods. Without a template for leaders, that for workers is for both.
	{"leaderworkerset", Descriptor{
		Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet", Resource: "leaderworkersets", Versions: []string{"v1"},
		PodTemplates: []TemplatePath{{Path: ".spec.leaderWorkerTemplate.workerTemplate"}, {Path: ".spec.leaderWorkerTemplate.leaderTemplate"}},
		Pods:         &Pods{Labels: map[string]string{"leaderworkerset.sigs.k8s.io/name": nameVariable}, Controller: ControlledByAny},
		// A change of either template replaces whole groups; that for workers is always there.
		Reload: Reload{By: ByTemplateAnnotation, Path: ".spec.leaderWorkerTemplate.workerTemplate"},
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, // not in every version
			Replicas:           specReplicas, Total: statusReplicas, Updated: statusUpdated, Ready: ".status.readyReplicas",
			Partition: ".spec.rolloutStrategy.rollingUpdateConfiguration.partition",
		},
	}},
	// OpenShift 4, as of openshift/api and openshift-controller-manager. A change of the template starts a rollout if spec.triggers contains
	// ConfigChange, as by default. Otherwise, status.updatedReplicas counts the pods of the last rollout as up to date.
	{"openshift-deploymentconfig", Descriptor{
		Group: "apps.openshift.io", Kind: "DeploymentConfig", Resource: "deploymentconfigs", Versions: []string{"v1"},
		PodTemplates: inTemplate,
		Pods:         &Pods{Labels: map[string]string{"deploymentconfig": nameVariable}, Controller: ControlledByAny},
		Reload:       onTemplateUnless(FieldTest{Path: ".spec.triggers[*].type", Not: "ConfigChange"}),
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, Replicas: specReplicas, Total: statusReplicas, Updated: statusUpdated, Ready: statusAvailable, Paused: specPaused,
			// The first ones are there for the reason that is shown.
			Failed: []StatusTest{
				{Condition: progressing, Status: "False", Reason: deadlineReason},
				{Condition: progressing, Status: "False", Reason: "RolloutCancelled"},
				{Condition: progressing, Status: "False", Reason: "ReplicationControllerCreateError"},
				{Condition: progressing, Status: "False"},
			},
		},
	}},
	// KubeRay 1.5 and 1.6. By default, its controller replaces no pods when a template changes, because that stops the applications of a
	// cluster. The container of the autoscaler, and what the controller adds to the head, are described outside of the templates.
	{"ray-cluster", Descriptor{
		Group: "ray.io", Kind: "RayCluster", Resource: "rayclusters", Versions: []string{"v1"},
		PodTemplates: []TemplatePath{{Path: ".spec.headGroupSpec.template"}, {Path: ".spec.workerGroupSpecs[*].template"}},
		Sources: slices.Concat(
			environmentOf(".spec.autoscalerOptions"),
			variableOf(".spec.gcsFaultToleranceOptions.redisUsername"), variableOf(".spec.gcsFaultToleranceOptions.redisPassword"),
			[]SourceFields{{Kind: dependency.Secret, Name: ".spec.authOptions.secretName", KeyName: "auth_token"}},
		),
		Pods:   &Pods{},
		Reload: Reload{By: ByEvent},
	}},
	// Slinky slurm-operator 1.0. The containers slurmd and logfile are described outside of the template. With the later
	// scalingMode DaemonSet, spec.replicas is 1, and the counts of the status tell.
	{"slurm-nodeset", Descriptor{
		Group: "slinky.slurm.net", Kind: "NodeSet", Resource: "nodesets", Versions: []string{"v1beta1"},
		PodTemplates: inTemplate,
		Sources: slices.Concat(
			[]SourceFields{{Kind: dependency.Secret, Name: ".spec.ssh.sssdConfRef.name", Key: ".spec.ssh.sssdConfRef.key"}},
			environmentOf(".spec.slurmd"), environmentOf(".spec.logfile"),
		),
		Pods:   &Pods{RevisionLabel: revisionHash, Revision: ".status.nodeSetHash"},
		Reload: onTemplate,
		Status: &StatusPaths{
			ObservedGeneration: observedGeneration, Replicas: specReplicas, Total: statusReplicas, Updated: statusUpdated, Ready: statusAvailable,
			Held: whileOnDelete,
		},
	}},
	// Strimzi 0.45. The pods are whole, and Strimzi itself rolls them.
	{"strimzi-podset", Descriptor{
		Group: "core.strimzi.io", Kind: "StrimziPodSet", Resource: "strimzipodsets", Versions: []string{"v1beta2", "v1"},
		PodTemplates: []TemplatePath{{Path: ".spec.pods[*]"}},
		Pods:         &Pods{},
		Reload:       Reload{By: ByNone},
	}},
}

// environmentOf describes what the environment of a container names.
func environmentOf(container string) []SourceFields {
	envFrom := container + ".envFrom[*]"
	return append(variableOf(container+".env[*]"),
		SourceFields{Kind: dependency.ConfigMap, Name: envFrom + ".configMapRef.name"},
		SourceFields{Kind: dependency.Secret, Name: envFrom + ".secretRef.name"},
	)
}

// variableOf describes what an environment variable names.
func variableOf(variable string) []SourceFields {
	from := variable + ".valueFrom"
	return []SourceFields{
		{Kind: dependency.ConfigMap, Name: from + ".configMapKeyRef.name", Key: from + ".configMapKeyRef.key"},
		{Kind: dependency.Secret, Name: from + ".secretKeyRef.name", Key: from + ".secretKeyRef.key"},
	}
}

// onTemplateUnless is onTemplate, but for workloads of which a test is true.
func onTemplateUnless(noRollout ...FieldTest) Reload {
	return Reload{By: ByTemplateAnnotation, NoRollout: noRollout}
}

// updatesInPlace are the values of a field of OpenKruise with which pods are changed in place.
func updatesInPlace(path string) []FieldTest {
	return []FieldTest{{Path: path, Value: "InPlaceIfPossible"}, {Path: path, Value: "InPlaceOnly"}}
}

// Presets returns the descriptors that come with configdep, in the order of their names. Callers must not modify them.
func Presets() []Preset { return slices.Clone(presets) }
