{{- define "failback.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 30 | trimSuffix "-" }}
{{- end }}

{{/* What names of this release begin with: its own name, unless that says failback already. */}}
{{- define "failback.fullname" -}}
{{- $name := include "failback.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" (.Release.Name | trunc (int (sub 39 (len $name))) | trimSuffix "-") $name }}
{{- end -}}
{{- end }}

{{/* The name of a part of this release, of (list root part). */}}
{{- define "failback.part" -}}
{{ include "failback.fullname" (first .) }}-{{ last . }}
{{- end }}

{{/* The account of a part, of (list root part). */}}
{{- define "failback.account" -}}
{{- $values := ternary (first .).Values (index (first .).Values (last .)) (eq (last .) "operator") -}}
{{ $values.serviceAccount.name | default (include "failback.part" .) }}
{{- end }}

{{- define "failback.labels" -}}
app.kubernetes.io/name: {{ include "failback.name" . }}-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: failback
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "failback.selector" -}}
app.kubernetes.io/name: {{ include "failback.name" . }}-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* The namespaces to look after, as {"names": [...]}; scope cluster: none, which means all. */}}
{{- define "failback.watched" -}}
{{- if eq .Values.rbac.scope "cluster" -}}
{{ dict "names" list | toJson }}
{{- else -}}
{{ dict "names" (.Values.watchNamespaces | default (list .Release.Namespace) | uniq) | toJson }}
{{- end -}}
{{- end }}

{{/* The namespaces of an account: its own list, else the watched ones, else the release's. */}}
{{- define "failback.accountNamespaces" -}}
{{- $watched := (include "failback.watched" .root | fromJson).names -}}
{{ dict "names" (.own | default $watched | default (list .root.Release.Namespace) | uniq) | toJson }}
{{- end }}

{{- define "failback.clusterName" -}}
{{ printf "%s-%s" .name .root.Release.Namespace | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "failback.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{/* Secrets of registries that resources may name, as {"names": [...]}. */}}
{{- define "failback.pullSecrets" -}}
{{- $names := (.Values.allow).pullSecrets | default list -}}
{{- range .Values.image.pullSecrets }}{{ $names = append $names .name }}{{ end -}}
{{ dict "names" ($names | uniq) | toJson }}
{{- end }}

{{/* An image for custom resources: with the chart's version where no tag or digest is given. */}}
{{- define "failback.taggedImage" -}}
{{- if or (contains "@" .image) (contains ":" (splitList "/" .image | last)) -}}
{{ .image }}
{{- else -}}
{{ printf "%s:%s" .image .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "failback.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "failback.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What hook Jobs share with the operator: its image, who runs it and where. */}}
{{- define "failback.hookPod" -}}
restartPolicy: Never
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  {{- include "failback.podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - {name: scratch, emptyDir: {sizeLimit: 64Mi}}
  - {name: run, emptyDir: {sizeLimit: 16Mi}}
{{- end }}

{{- define "failback.hookContainer" -}}
image: {{ include "failback.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: {{ .command | default (list "failback-init" "--" "failback") | toJson }}
securityContext:
  {{- include "failback.containerSecurity" . | nindent 2 }}
env:
  - {name: HOME, value: /home/rocketmq}
  - {name: TMPDIR, value: /home/rocketmq/scratch}
resources:
  requests: {cpu: 50m, memory: 128Mi}
  limits: {memory: 256Mi}
volumeMounts:
  - {name: scratch, mountPath: /home/rocketmq/scratch}
  - {name: run, mountPath: /run/failback}
{{- end }}

{{/* How a guarded cluster is asked: of its access, in the values, three parts of a pod. */}}
{{- define "failback.accessEnvironment" -}}
{{- with . }}
{{- if .keySecret }}
- {name: FAILBACK_ACCESS_KEY_FILE, value: /etc/failback/access-key/tools.yml}
{{- end }}
{{- if .tls }}
- {name: FAILBACK_TLS, value: "true"}
{{- end }}
{{- if .caSecret }}
- {name: FAILBACK_TLS_CA, value: /etc/failback/cluster-ca/ca.crt}
{{- end }}
{{- if .certSecret }}
- {name: FAILBACK_TLS_CERT, value: /etc/failback/cluster-tls/tls.crt}
- {name: FAILBACK_TLS_KEY, value: /etc/failback/cluster-tls/tls.key}
{{- end }}
{{- if .serverName }}
- {name: FAILBACK_TLS_SERVER_NAME, value: {{ .serverName | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "failback.accessMounts" -}}
{{- with . }}
{{- if .keySecret }}
- {name: access-key, mountPath: /etc/failback/access-key, readOnly: true}
{{- end }}
{{- if .caSecret }}
- {name: cluster-ca, mountPath: /etc/failback/cluster-ca, readOnly: true}
{{- end }}
{{- if .certSecret }}
- {name: cluster-tls, mountPath: /etc/failback/cluster-tls, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "failback.accessVolumes" -}}
{{- with . }}
{{- if .keySecret }}
- {name: access-key, secret: {secretName: {{ .keySecret }}}}
{{- end }}
{{- if .caSecret }}
- {name: cluster-ca, secret: {secretName: {{ .caSecret }}}}
{{- end }}
{{- if .certSecret }}
- {name: cluster-tls, secret: {secretName: {{ .certSecret }}}}
{{- end }}
{{- end }}
{{- end }}

{{- define "failback.uninstallHook" }}
    helm.sh/hook: pre-delete
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "failback.labelHook" }}
    helm.sh/hook: post-install,post-upgrade
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Whether the API server has the chart's admission policies: true, or nothing. */}}
{{- define "failback.hasPolicies" -}}
{{- if and (.Values.admissionPolicies).enabled (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}
