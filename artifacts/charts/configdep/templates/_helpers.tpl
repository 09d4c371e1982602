{{- define "configdep.name" -}}
{{- default (default "configdep-apiserver" .Values.nameOverride) .Values.fullnameOverride -}}
{{- end }}

{{- define "configdep.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "configdep.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: has to be set where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- /* The metadata of an object, given (dict "root" $ "name" ... "namespace" ... "labels" ... "annotations" ...). */ -}}
{{- define "configdep.metadata" -}}
{{- $root := .root -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- $labels := dict
    "app.kubernetes.io/name" (include "configdep.name" $root)
    "app.kubernetes.io/instance" $root.Release.Name
    "app.kubernetes.io/part-of" "configdep"
    "app.kubernetes.io/managed-by" $root.Release.Service
    "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_")) }}
  {{- if $root.Chart.AppVersion }}
  {{- $_ := set $labels "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_" | trunc 63) }}
  {{- end }}
  {{- merge $labels (default dict .labels) $root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (default dict .annotations) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Never add labels here: a Deployment's selector is immutable. */ -}}
{{- define "configdep.selector" -}}
app.kubernetes.io/name: {{ include "configdep.name" . }}
{{- end }}

{{- define "configdep.subjects" -}}
- kind: ServiceAccount
  name: {{ include "configdep.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "configdep.image" -}}
{{- include "configdep.imageName" (dict "root" . "image" .Values.image "program" "configdep-apiserver") -}}
{{- end }}

{{- define "configdep.agentImage" -}}
{{- include "configdep.imageName" (dict "root" . "image" .Values.agent.image "program" "configdep-agent") -}}
{{- end }}

{{- /* The name of an image, given (dict "root" $ "image" its values "program" its name in Chart.yaml, which says what a release consists of). */ -}}
{{- define "configdep.imageName" -}}
{{- $values := .root.Values -}}
{{- with default (default $values.image.registry .image.registry) $values.global.imageRegistry }}{{ trimSuffix "/" . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else if .image.tag }}:{{ .image.tag }}{{ else }}
{{- range index .root.Chart.Annotations "artifacthub.io/images" | fromYamlArray }}
{{- if eq .name $.program }}{{ regexFind ":[^:/@]+(@.*)?$" .image }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The Secret with the serving certificate and its CA. */ -}}
{{- define "configdep.certificateSecret" -}}
{{- if eq .Values.tls.mode "existingSecret" -}}
{{- required "tls.existingSecret: has to be set where tls.mode is existingSecret" .Values.tls.existingSecret -}}
{{- else -}}
configdep-serving-cert
{{- end -}}
{{- end }}

{{- /* The Secret with the destinations of notifications; empty: there are none. */ -}}
{{- define "configdep.notificationsSecret" -}}
{{- default (ternary "configdep-notifications" "" (not (empty .Values.notifications.config))) .Values.notifications.existingSecret -}}
{{- end }}

{{- /* Whether workloads without an annotation are restarted. */ -}}
{{- define "configdep.reloadsAll" -}}
{{- if or .Values.reload.autoReloadAll (not (has .Values.reload.default (list "" "off"))) }}true{{ end -}}
{{- end }}

{{- define "configdep.serverName" -}}
{{ include "configdep.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* The endpoint of a monitor, given (dict "root" $ "monitor" its values "insecure" whether it is the port without TLS). */ -}}
{{- define "configdep.endpoint" -}}
{{- $root := .root -}}
path: /metrics
{{- if .insecure }}
port: metrics
{{- else }}
port: https
scheme: https
tlsConfig:
  serverName: {{ include "configdep.serverName" $root }}
  ca:
    configMap:
      name: configdep-serving-ca
      key: ca.crt
{{- if $root.Values.monitoring.token }}
authorization:
  type: Bearer
  credentials:
    name: {{ include "configdep.name" $root }}-metrics
    key: token
{{- else }}
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}
{{- end }}
{{- with .monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with .monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
honorLabels: {{ .monitor.honorLabels }}
{{- with .monitor.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The annotation of a Deployment that was paused when it was restarted. */ -}}
{{- define "configdep.pausedAt" -}}
{{- .Values.reload.reloaderAnnotations.pausedAt | default "deployment.reloader.stakater.com/paused-at" -}}
{{- end }}

{{- /* A value within an object in CEL, as an optional, given (dict "object" "object" "path" (list "spec" "template")). Objects of
Kubernetes' own types have no index. */ -}}
{{- define "configdep.at" -}}
{{- if eq (toJson .path) (toJson (list "spec" "template")) -}}
{{ .object }}.?spec.template{{ range .below }}.{{ . }}{{ end }}
{{- else -}}
{{ .object }}[?{{ include "configdep.quoted" (first .path) }}]{{ range concat (rest .path) (.below | default list) }}[{{ include "configdep.quoted" . }}]{{ end }}
{{- end -}}
{{- end }}

{{- /* The map at such a path; {}: it is absent or null. */ -}}
{{- define "configdep.mapAt" -}}
[dyn({{ include "configdep.at" . }}.orValue({}))].map(m, m == null ? dyn({}) : m)[0]
{{- end }}

{{- /* A text in CEL. Names in paths have no quotation marks. */ -}}
{{- define "configdep.quoted" -}}
'{{ replace "\\" "\\\\" . }}'
{{- end }}

{{- /* Not empty if kube-apiserver keeps configdep's annotations on workloads: MutatingAdmissionPolicies are there since Kubernetes 1.36. */ -}}
{{- define "configdep.keepsAnnotations" -}}
{{- $is := .Values.mutatingAdmissionPolicies.enabled -}}
{{- if kindIs "bool" $is -}}
{{- if $is }}true{{ end -}}
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
true
{{- end -}}
{{- end }}

{{- /* What the manifests say about the presets of the server, by name: the parts of their descriptors on which rights and admission
policies depend. A test compares them with the server. */ -}}
{{- define "configdep.presets" -}}
argo-rollout:
  group: argoproj.io
  kind: Rollout
  resource: rollouts
  versions: [v1alpha1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
  restartAt: true
knative-service:
  group: serving.knative.dev
  kind: Service
  alias: KnativeService
  resource: services
  versions: [v1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
kruise-cloneset:
  group: apps.kruise.io
  kind: CloneSet
  resource: clonesets
  versions: [v1alpha1, v1beta1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
kruise-daemonset:
  group: apps.kruise.io
  kind: DaemonSet
  alias: AdvancedDaemonSet
  resource: daemonsets
  versions: [v1alpha1, v1beta1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
kruise-statefulset:
  group: apps.kruise.io
  kind: StatefulSet
  alias: AdvancedStatefulSet
  resource: statefulsets
  versions: [v1beta1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
leaderworkerset:
  group: leaderworkerset.x-k8s.io
  kind: LeaderWorkerSet
  resource: leaderworkersets
  versions: [v1]
  podTemplates: [{path: .spec.leaderWorkerTemplate.workerTemplate}, {path: .spec.leaderWorkerTemplate.leaderTemplate}]
  reload: {by: TemplateAnnotation, path: .spec.leaderWorkerTemplate.workerTemplate}
openshift-deploymentconfig:
  group: apps.openshift.io
  kind: DeploymentConfig
  resource: deploymentconfigs
  versions: [v1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
ray-cluster:
  group: ray.io
  kind: RayCluster
  resource: rayclusters
  versions: [v1]
  podTemplates: [{path: .spec.headGroupSpec.template}, {path: ".spec.workerGroupSpecs[*].template"}]
  reload: {by: Event}
slurm-nodeset:
  group: slinky.slurm.net
  kind: NodeSet
  resource: nodesets
  versions: [v1beta1]
  podTemplates: [{path: .spec.template}]
  reload: {by: TemplateAnnotation}
strimzi-podset:
  group: core.strimzi.io
  kind: StrimziPodSet
  resource: strimzipodsets
  versions: [v1beta2, v1]
  podTemplates: [{path: ".spec.pods[*]"}]
  reload: {by: None}
{{- end }}

{{- /* The names in a path such as .spec.template or .spec['a.b'][*], as a list in JSON; [*] is "". */ -}}
{{- define "configdep.segments" -}}
{{- $names := list }}
{{- range regexFindAll "\\.[A-Za-z0-9_-]+|\\['[^']+'\\]|\\[\\*\\]" . -1 }}
{{- if eq . "[*]" }}
{{- $names = append $names "" }}
{{- else if hasPrefix "." . }}
{{- $names = append $names (trimPrefix "." .) }}
{{- else }}
{{- $names = append $names (trimSuffix "']" (trimPrefix "['" .)) }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- /* The kinds of custom resources that are workloads, as a list in JSON. Of each: its group, resource and versions; template, the path
of the pod template whose annotations a restart changes, or none; written, the paths that the server may write; annotation, the one by which
it is reloaded; patch, whether anything is written; fields, whether fields are set; and templates, the paths of all pod templates. */ -}}
{{- define "configdep.kinds" -}}
{{- $described := dict }}
{{- range .Values.kinds.config }}
{{- $_ := set $described (printf "%s.%s" .resource .group) true }}
{{- end }}
{{- $kinds := list }}
{{- range $name, $kind := include "configdep.presets" . | fromYaml }}
{{- if and (has $name $.Values.kinds.presets) (not (hasKey $described (printf "%s.%s" $kind.resource $kind.group))) }}
{{- $kinds = append $kinds $kind }}
{{- end }}
{{- end }}
{{- $out := list }}
{{- /* The resources, the kinds with their groups, and the names in views, which are in lower case there: each must be unique. */}}
{{- $resources := dict }}
{{- $groupKinds := dict }}
{{- $names := dict }}
{{- range list "Deployment" "StatefulSet" "DaemonSet" "CronJob" "Job" "ReplicaSet" "Pod" }}
{{- $_ := set $names (lower .) "a kind of Kubernetes itself" }}
{{- end }}
{{- range concat $kinds (.Values.kinds.config | default list) }}
{{- $id := printf "%s.%s" .resource .group }}
{{- if hasKey $resources $id }}
{{- fail (printf "kinds.config: %s is described twice" $id) }}
{{- end }}
{{- $_ := set $resources $id true }}
{{- $groupKind := printf "%s.%s" .kind .group }}
{{- with get $groupKinds $groupKind }}
{{- fail (printf "kinds.config: %s has the same kind and group as %s" $id .) }}
{{- end }}
{{- $_ := set $groupKinds $groupKind $id }}
{{- $shown := .alias | default .kind }}
{{- with get $names (lower $shown) }}
{{- fail (printf "kinds.config: %s has the name %s, as has %s: set alias to another name" $id $shown .) }}
{{- end }}
{{- $_ := set $names (lower $shown) $id }}
{{- if and .reload.path (not (has .reload.by (list "TemplateAnnotation" "Field"))) }}
{{- fail (printf "kinds.config: %s: reload.path has no meaning if by is %s" $id .reload.by) }}
{{- end }}
{{- if and .reload.path (eq .reload.by "Field") }}
{{- $field := .reload.path }}
{{- if has $field (list ".spec" "['spec']") }}
{{- fail (printf "kinds.config: %s: reload.path must not be all of spec" $id) }}
{{- end }}
{{- range .podTemplates }}
{{- if or (eq $field .path) (hasPrefix (print .path ".") $field) (hasPrefix (print .path "[") $field) (hasPrefix (print $field ".") .path) (hasPrefix (print $field "[") .path) }}
{{- fail (printf "kinds.config: %s: reload.path must not be part of a pod template, nor contain one" $id) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .reload.annotation (ne .reload.by "Annotation") }}
{{- fail (printf "kinds.config: %s: reload.annotation has no meaning if by is %s" $id .reload.by) }}
{{- end }}
{{- if and .reload.value (not .reload.annotation) }}
{{- fail (printf "kinds.config: %s: reload.value has no meaning without reload.annotation" $id) }}
{{- end }}
{{- if and .reload.unless (eq .reload.by "None") }}
{{- fail (printf "kinds.config: %s: reload.unless has no meaning if by is None" $id) }}
{{- end }}
{{- if and .reload.noRollout (ne .reload.by "TemplateAnnotation") }}
{{- fail (printf "kinds.config: %s: reload.noRollout has no meaning if by is %s" $id .reload.by) }}
{{- end }}
{{- if and .fields (or (eq .reload.by "None") .reload.unless) }}
{{- fail (printf "kinds.config: %s: fields cannot be true if reload.by is None, or with reload.unless" $id) }}
{{- end }}
{{- if and .restartAt (eq .reload.by "None") }}
{{- fail (printf "kinds.config: %s: restartAt cannot be true if reload.by is None" $id) }}
{{- end }}
{{- if and .templateFrom (not .restartAt) }}
{{- fail (printf "kinds.config: %s: templateFrom needs restartAt" $id) }}
{{- end }}
{{- $template := list }}
{{- $written := list }}
{{- if eq .reload.by "TemplateAnnotation" }}
{{- if and (not .reload.path) (ne (len (.podTemplates | default list)) 1) }}
{{- fail (printf "kinds.config: %s needs reload.path, which of podTemplates is changed; it is known only if there is one" $id) }}
{{- end }}
{{- $template = include "configdep.segments" (.reload.path | default (first .podTemplates).path) | fromJsonArray }}
{{- if has "" $template }}
{{- fail (printf "kinds.config: %s: reload.path, or the path of the only one of podTemplates, must not contain [*]: one pod template is changed" $id) }}
{{- end }}
{{- $written = append $written (concat $template (list "metadata" "annotations")) }}
{{- end }}
{{- if eq .reload.by "Field" }}
{{- if not .reload.path }}
{{- fail (printf "kinds.config: %s needs reload.path, the field that is set" $id) }}
{{- end }}
{{- $written = append $written (include "configdep.segments" .reload.path | fromJsonArray) }}
{{- end }}
{{- if .restartAt }}
{{- $written = append $written (list "spec" "restartAt") }}
{{- end }}
{{- $templates := list }}
{{- range .podTemplates }}
{{- $templates = append $templates (include "configdep.segments" .path | fromJsonArray) }}
{{- end }}
{{- if and $template (not (has $template $templates)) }}
{{- fail (printf "kinds.config: %s: reload.path must be one of podTemplates" $id) }}
{{- end }}
{{- $patch := or (ne .reload.by "None") (default false .fields) }}
{{- $out = append $out (dict "group" .group "resource" .resource "versions" .versions "id" $id "template" $template "written" $written
  "annotation" (.reload.annotation | default "") "patch" $patch "fields" (default false .fields) "templates" $templates) }}
{{- end }}
{{- toJson $out }}
{{- end }}

{{- /* What of an object is compared with what it was, in CEL, as elements of a list: the new and the old value of an object, and which of
its members may differ. Given (dict "at" "" "paths" ...), it is for all objects on the way to paths. What is at the end of a path may be
any value. */ -}}
{{- define "configdep.compared" -}}
{{- $at := .at }}
{{- $new := empty .at | ternary "variables.new" (print "dyn(variables.new" .at ".orValue({}))") }}
{{- $old := empty .at | ternary "variables.old" (print "dyn(variables.old" .at ".orValue({}))") }}
{{- $below := dict }}
{{- range .paths }}
{{- $_ := set $below (first .) (append (get $below (first .) | default list) (rest .)) }}
{{- end }}
{{- $names := list }}
{{- range $name, $_ := $below }}
{{- $names = append $names (include "configdep.quoted" $name) }}
{{- end -}}
[{{ $new }}, {{ $old }}, dyn([{{ join ", " $names }}])]
{{- range $name, $paths := $below }}
{{- if not (has (list) $paths) }},
{{ include "configdep.compared" (dict "paths" $paths "at" (print $at "[" (empty $at | ternary "?" "") (include "configdep.quoted" $name) "]")) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The values at a path that may have [*], in CEL, given (dict "in" ... "path" ...): an optional, or a list of them. Maps for which a
[*] stands count as a whole, because their members have no order. */ -}}
{{- define "configdep.valuesAt" -}}
{{- $expression := .in }}
{{- $optional := false }}
{{- $path := .path }}
{{- range $i, $name := .path }}
{{- if and $name $path }}
{{- $expression = print $expression "[" ($optional | ternary "" "?") (include "configdep.quoted" $name) "]" }}
{{- $optional = true }}
{{- $path = rest $path }}
{{- else if $path }}
{{- $rest := rest $path }}
{{- $path = list }}
{{- $list := $optional | ternary (print $expression ".orValue([])") $expression }}
{{- if $rest }}
{{- $expression = print "[" $list "].map(v, type(v) == list ? dyn(v.map(e, " (include "configdep.valuesAt" (dict "in" "e" "path" $rest)) ")" (has "" $rest | ternary "" ".filter(o, o.hasValue())") ") : dyn(v))" }}
{{- end }}
{{- end }}
{{- end -}}
{{ $expression }}
{{- end }}

{{- /* The kinds of workloads that are not read, separated by commas. */ -}}
{{- define "configdep.ignoredWorkloads" -}}
{{- $ignored := list }}
{{- if not .Values.workloads.jobs }}
{{- $ignored = append $ignored "jobs" }}
{{- end }}
{{- if not .Values.workloads.cronJobs }}
{{- $ignored = append $ignored "cronjobs" }}
{{- end }}
{{- join "," $ignored }}
{{- end }}

{{/* A label selector, {matchLabels, matchExpressions}, in the format of a flag. */}}
{{- define "configdep.labelSelector" -}}
{{- $parts := list }}
{{- range $key, $value := .matchLabels }}
{{- $parts = append $parts (printf "%s=%s" $key $value) }}
{{- end }}
{{- range .matchExpressions }}
{{- if eq .operator "Exists" }}
{{- $parts = append $parts .key }}
{{- else if eq .operator "DoesNotExist" }}
{{- $parts = append $parts (print "!" .key) }}
{{- else }}
{{- $parts = append $parts (printf "%s %s (%s)" .key (lower .operator) (join "," .values)) }}
{{- end }}
{{- end }}
{{- join "," $parts }}
{{- end }}

{{- /* The requests to which the admission policies apply. */ -}}
{{- define "configdep.byConfigdep" -}}
- name: by-configdep
  expression: has(request.userInfo.username) && request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "configdep.serviceAccountName" . }}'
{{- end }}
