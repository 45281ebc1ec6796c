{{- define "pointsman.labels" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "pointsman.config" -}}
listen:
  spoe: unix:///run/pointsman/spoe.sock
  feed: tcp://127.0.0.1:9901
  admin: 0.0.0.0:9909
haproxy:
  version: {{ .Values.haproxy.version | quote }}
  runtime_api: unix:///run/pointsman/haproxy.sock
  bind: ":8080"
pools:
{{ required "pools: want at least one" .Values.pools | toYaml | indent 2 }}
{{ omit (mergeOverwrite (dict "agent" (dict "state_dir" "/var/lib/pointsman")) .Values.config) "listen" "haproxy" "pools" | toYaml }}
{{- end }}
