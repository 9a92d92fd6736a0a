{{- define "kuvasz.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kuvasz.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kuvasz.labels" -}}
{{ include "kuvasz.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "kuvasz.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kuvasz.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "kuvasz.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "kuvasz.scheme" -}}
{{- ternary "HTTPS" "HTTP" .Values.tls -}}
{{- end -}}

{{- define "kuvasz.map" -}}
{{- if and .Values.map .Values.existingMap -}}
{{- fail "give map or existingMap, not both" -}}
{{- end -}}
{{- if not (or .Values.map .Values.existingMap) -}}
{{- fail "there is no map: helm install … --set-file map=map.yaml, or existingMap" -}}
{{- end -}}
{{- .Values.existingMap | default (printf "%s-map" (include "kuvasz.name" .)) -}}
{{- end -}}

{{/* The names that its service has: kuvasz answers 421 under others. */}}
{{- define "kuvasz.hosts" -}}
{{- $name := include "kuvasz.name" . -}}
{{- $full := printf "%s.%s" $name .Release.Namespace -}}
{{- concat (list $name $full (printf "%s.svc" $full) (printf "%s.svc.cluster.local" $full)) .Values.hosts | toJson -}}
{{- end -}}
