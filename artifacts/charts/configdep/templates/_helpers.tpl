{{- define "configdep.name" -}}
{{- default "configdep-apiserver" .Values.fullnameOverride -}}
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
{{- $registry := default .Values.image.registry .Values.global.imageRegistry -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
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

{{- /* Whether workloads without an annotation are restarted: the webhook is then called for all workloads. */ -}}
{{- define "configdep.reloadsAll" -}}
{{- if or .Values.reload.autoReloadAll (not (has .Values.reload.default (list "" "off"))) }}true{{ end -}}
{{- end }}

{{- define "configdep.serverName" -}}
{{ include "configdep.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* The endpoint of the monitors, which verify the server's certificate. */ -}}
{{- define "configdep.endpoint" -}}
{{- $root := .root -}}
port: https
scheme: https
path: /metrics
tlsConfig:
  serverName: {{ include "configdep.serverName" $root }}
  ca:
    {{- if eq $root.Values.tls.mode "cert-manager" }}
    secret:
      name: {{ include "configdep.certificateSecret" $root }}
      key: ca.crt
    {{- else }}
    configMap:
      name: configdep-serving-ca
      key: ca.crt
    {{- end }}
{{- if $root.Values.monitoring.token }}
authorization:
  type: Bearer
  credentials:
    name: {{ include "configdep.name" $root }}-metrics
    key: token
{{- else }}
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
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

{{- /* The annotations of Stakater Reloader by which workloads and pod templates opt in, as a list in CEL. */ -}}
{{- define "configdep.reloaderKeys" -}}
{{- $names := .Values.reload.reloaderAnnotations -}}
'{{ $names.auto | default "reloader.stakater.com/auto" }}', '{{ $names.search | default "reloader.stakater.com/search" }}',
{{- range $kind := list "configMap" "secret" }} '{{ get $names $kind | default (printf "%s.reloader.stakater.com/reload" (lower $kind)) }}', '{{ get $names (print $kind "Auto") | default (printf "%s.reloader.stakater.com/auto" (lower $kind)) }}',
{{- end }} 'secretproviderclass.reloader.stakater.com/reload', 'secretproviderclass.reloader.stakater.com/auto'
{{- end }}

{{- /* The annotations by which workloads opt in, as a list in CEL. */ -}}
{{- define "configdep.optInKeys" -}}
'configdep.io/reload'
{{- if has "reloader" .Values.reload.dialects }}, {{ include "configdep.reloaderKeys" . }}{{ end }}
{{- if has "pod-reloader" .Values.reload.dialects }}, 'pod-reloader.cs.sap.com/configmaps', 'pod-reloader.cs.sap.com/secrets'{{ end }}
{{- if has "wave" .Values.reload.dialects }}, 'wave.pusher.com/update-on-config-change'{{ end }}
{{- end }}

{{- /* The annotation of a Deployment that was paused when it was restarted. */ -}}
{{- define "configdep.pausedAt" -}}
{{- .Values.reload.reloaderAnnotations.pausedAt | default "deployment.reloader.stakater.com/paused-at" -}}
{{- end }}

{{- /* Matches workloads that have opted in themselves, or that have a record of configdep, in CEL. */ -}}
{{- define "configdep.marked" -}}
(has(object.metadata.annotations) && [{{ include "configdep.optInKeys" . }}].exists(k, k in object.metadata.annotations)) ||
{{- if has "reloader" .Values.reload.dialects }}
(has(object.spec.template.metadata) && has(object.spec.template.metadata.annotations) && [{{ include "configdep.reloaderKeys" . }}].exists(k, k in object.spec.template.metadata.annotations)) ||
{{- end }}
(oldObject != null && has(oldObject.metadata.annotations) && 'configdep.io/config-hash' in oldObject.metadata.annotations) ||
(oldObject != null && has(oldObject.spec.template.metadata) && has(oldObject.spec.template.metadata.annotations) && 'configdep.io/config-hash' in oldObject.spec.template.metadata.annotations)
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
