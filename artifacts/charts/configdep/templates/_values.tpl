{{- /* Fails for a value at the top that the chart does not have, with the name of the one that may be meant. The schema does the same below. */ -}}
{{- define "configdep.checkNames" -}}
{{- $known := list
  "global" "image" "imagePullSecrets" "agent" "nameOverride" "fullnameOverride" "commonLabels" "commonAnnotations"
  "replicas" "minReadySeconds" "revisionHistoryLimit" "updateStrategy" "reload" "notifications" "namespaces"
  "ignoredNamespaces" "workloads" "kinds" "sources" "configMaps" "secretProviderClasses" "secrets" "tls"
  "rbac" "admissionPolicies" "mutatingAdmissionPolicies" "serviceAccount" "service" "deployment" "podAnnotations" "podLabels" "resources"
  "goMaxProcs" "goMemLimit" "affinity" "topologySpreadConstraints" "nodeSelector" "tolerations" "hostAliases"
  "priorityClassName" "criticalPodsQuota" "runtimeClassName" "schedulerName" "dnsConfig" "dnsPolicy" "hostUsers"
  "hostNetwork" "securePort" "terminationGracePeriodSeconds" "podSecurityContext" "securityContext" "startupProbe"
  "readinessProbe" "livenessProbe" "logFormat" "logLevel" "pprof" "extraArgs" "extraEnv" "extraEnvFrom" "extraVolumes"
  "extraVolumeMounts" "extraObjects" "podDisruptionBudget" "networkPolicy" "priorityAndFairness" "monitoring" "tests" "enabled" -}}
{{- $elsewhere := dict "replicaCount" "replicas" "serviceMonitor" "monitoring.serviceMonitor" "podMonitor" "monitoring.podMonitor"
  "prometheusRule" "monitoring.prometheusRule" "metrics" "monitoring" "prometheus" "monitoring" "strategy" "updateStrategy" "pdb" "podDisruptionBudget"
  "labels" "commonLabels" "annotations" "commonAnnotations" "env" "extraEnv" "args" "extraArgs" "volumes" "extraVolumes" "volumeMounts" "extraVolumeMounts"
  "extraManifests" "extraObjects" "verbosity" "logLevel" "deploymentAnnotations" "deployment.annotations" "registry" "image.registry" -}}
{{- range $name, $_ := .Values -}}
{{- if not (has $name $known) -}}
{{- $nearest := get $elsewhere $name -}}
{{- range $n := untilStep (min (len $name) 20 | int) 2 -1 -}}
{{- range $known -}}
{{- if and (not $nearest) (hasPrefix (trunc $n $name | lower) (lower .)) -}}
{{- $nearest = . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $nearest -}}
{{- fail (printf "%s: there is no such value; %s may be meant" $name $nearest) -}}
{{- end -}}
{{- fail (printf "%s: there is no such value, only %s" $name (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end }}
