{{- define "pegasus.labels" -}}
app.kubernetes.io/name: pegasus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "pegasus.selector" -}}
app.kubernetes.io/name: pegasus
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "pegasus.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}
