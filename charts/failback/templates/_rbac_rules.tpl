{{/* What the operator may do: the same rules in a Role per namespace or in one ClusterRole. */}}
{{- define "failback.operatorRules" -}}
- apiGroups: [failback.dev]
  resources: [nameservers, offsetsnapshots, reconsumptionreports]
  verbs: [get, list, watch]
# patch: finalizers; of brokerclusters spent annotations
- apiGroups: [failback.dev]
  resources: [brokerclusters, topics, subscriptiongroups, roleswitches, chaosexperiments]
  verbs: [get, list, watch, patch]
- apiGroups: [failback.dev]
  resources: [nameservers/status, brokerclusters/status, topics/status, subscriptiongroups/status, roleswitches/status, offsetsnapshots/status, chaosexperiments/status, reconsumptionreports/status]
  verbs: [patch]
# create: for failover.onDrain
- apiGroups: [failback.dev]
  resources: [roleswitches]
  verbs: [create, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  {{- if .Values.allow.externalServices }}
  # delete: those for clients outside, of members that leave
  verbs: [get, list, watch, create, patch, delete]
  {{- else }}
  verbs: [get, list, watch, create, patch]
  {{- end }}
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  # list: those of a StatefulSet or Job whose pod is refused
  verbs: [create, list]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch{{ if or .Values.chaos.enabled .Values.spark.enabled }}, create, patch, delete{{ end }}]
{{- if .Values.podMonitors.enabled }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch, delete]
{{- end }}
{{- if .Values.spark.operator.enabled }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, create, patch]
{{- end }}
{{- end }}

{{/* What an experiment's Job may do. */}}
{{- define "failback.chaosRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list]
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]  # exec over a WebSocket is a GET
- apiGroups: [failback.dev]
  resources: [brokerclusters]
  verbs: [get, patch]
- apiGroups: [failback.dev]
  resources: [roleswitches]
  verbs: [get, create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
{{- if .Values.chaos.chaosMesh.enabled }}
- apiGroups: [chaos-mesh.org]
  resources: [networkchaos]
  verbs: [get, create, delete]
{{- end }}
{{- end }}

{{/* What a Spark driver may do for its executors. */}}
{{- define "failback.sparkRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, deletecollection]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, deletecollection]
- apiGroups: [""]
  resources: [services]
  verbs: [deletecollection]  # at its end Spark deletes what carries its application's label
{{- end }}

{{/* What a dashboard reads. Brokers it asks by themselves. */}}
{{- define "failback.dashboardRules" -}}
- apiGroups: [failback.dev]
  resources: [nameservers, brokerclusters]
  verbs: [list]
{{- end }}
