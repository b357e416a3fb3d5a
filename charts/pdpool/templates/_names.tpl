{{- define "pdpool.labels" -}}
app.kubernetes.io/name: pdpool
app.kubernetes.io/component: manager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "pdpool.selector" -}}
app.kubernetes.io/name: pdpool
app.kubernetes.io/component: manager
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pdpool.image" -}}
{{ .root.Values.image.repository }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}
