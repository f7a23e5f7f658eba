{{/* Names and labels that several templates share. */}}

{{/* The name of almost everything. Short enough for "-metrics" and the like behind it (63). */}}
{{- define "usher.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "usher.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "usher.commonLabels" -}}
app.kubernetes.io/part-of: usher
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "usher.labels" -}}
{{ include "usher.selectorLabels" . }}
{{ include "usher.commonLabels" . }}
{{- end -}}

{{- define "usher.serviceAccountName" -}}
{{- default (ternary (include "usher.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* As whom the controller writes. */}}
{{- define "usher.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "usher.serviceAccountName" . }}
{{- end -}}

{{- define "usher.image" -}}
{{- $image := .Values.image -}}
{{- $name := ternary (printf "%s/%s" $image.registry $image.repository) $image.repository (ne $image.registry "") -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* The Secret that holds the serving certificate; written by the agent, by cert-manager, or by you. */}}
{{- define "usher.secretName" -}}
{{- if eq .Values.certificates.source "secret" -}}
{{ .Values.certificates.existingSecret.name }}
{{- else -}}
{{ include "usher.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* Not empty if there is a MutatingWebhookConfiguration. */}}
{{- define "usher.mutates" -}}
{{- if or .Values.registration.mutating.enabled (include "usher.registersResponders" .) }}true{{ end -}}
{{- end -}}

{{/* The ValidatingWebhookConfigurations, as a YAML list. */}}
{{- define "usher.validatingNames" -}}
{{- $name := include "usher.fullname" . -}}
{{- $names := list $name (printf "%s-withdrawals" $name) -}}
{{- if .Values.registration.pods.enabled }}{{ $names = append $names (printf "%s-pods" $name) }}{{ end -}}
{{ toYaml $names }}
{{- end -}}

{{/* The MutatingWebhookConfigurations, as a YAML list. */}}
{{- define "usher.mutatingNames" -}}
{{- $name := include "usher.fullname" . -}}
{{- $names := list -}}
{{- if .Values.registration.mutating.enabled }}{{ $names = append $names $name }}{{ end -}}
{{- if include "usher.registersResponders" . }}{{ $names = append $names (printf "%s-pods" $name) }}{{ end -}}
{{ toYaml $names }}
{{- end -}}

{{/* Flags that name all configurations. */}}
{{- define "usher.configurations" -}}
{{- range include "usher.validatingNames" . | fromYamlArray }}
- --validating={{ . }}
{{- end }}
{{- range include "usher.mutatingNames" . | fromYamlArray }}
- --mutating={{ . }}
{{- end }}
{{- end -}}

{{/* Head of a configuration, from a list of root, kind, and what its name ends with. What comes and
     goes, with a value or with a version, must be an object: whoever injects a caBundle owns a part
     of the webhook, so that one that helm takes out of a list would stay there with nothing but its
     caBundle, and be refused. */}}
{{- define "usher.configuration" -}}
{{- $root := first . -}}
apiVersion: admissionregistration.k8s.io/v1
kind: {{ index . 1 }}WebhookConfiguration
metadata:
  name: {{ include "usher.fullname" $root }}{{ last . }}
  labels:
    {{- include "usher.labels" $root | nindent 4 }}
  {{- with include "usher.injection" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Not empty if policies register responders for pods. */}}
{{- define "usher.registersResponders" -}}
{{- if and .Values.registration.pods.enabled .Values.registration.pods.policies (has "register-responders" .Values.webhook.mutations) }}true{{ end -}}
{{- end -}}

{{/* How a guard is enforced whose value is the second of the list. */}}
{{- define "usher.enforcement" -}}
{{- $root := first . -}}
{{- $mode := last . -}}
{{- ternary "audit" $mode (and $root.Values.audit (ne $mode "off")) -}}
{{- end -}}

{{/* A failurePolicy, the second of the list, unless this is an audit. */}}
{{- define "usher.failurePolicy" -}}
{{- ternary "Ignore" (last .) (first .).Values.audit -}}
{{- end -}}

{{/* Where API servers find the path `.path`: by the Service, or by a URL. No caBundle, ever. */}}
{{- define "usher.clientConfig" -}}
{{- if .root.Values.webhook.url -}}
url: {{ trimSuffix "/" .root.Values.webhook.url }}{{ .path }}
{{- else -}}
service:
  namespace: {{ .root.Release.Namespace }}
  name: {{ include "usher.fullname" .root }}
  path: {{ .path }}
  port: {{ int .root.Values.service.port }}
{{- end -}}
{{- end -}}

{{/* What every webhook of a configuration has in common; `.at` are its values. */}}
{{- define "usher.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: None
matchPolicy: Equivalent
timeoutSeconds: {{ int .at.timeoutSeconds }}
clientConfig:
  {{- include "usher.clientConfig" . | nindent 2 }}
{{- with .at.objectSelector }}
objectSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Skips what the controller writes: it judges that by the same rules before it sends it. */}}
{{- define "usher.notByController" -}}
{{- if .root.Values.controller.enabled }}
- name: not-by-usher-controller
  expression: request.userInfo.username != {{ include "usher.user" .root | quote }}
{{- end }}
{{- end -}}

{{/* Skips what Kubernetes does to objects that have lost their owner or their namespace: it deletes
     them, and takes owner references and finalizers away before. These are the names of
     rules/callers.py. kube-controller-manager may also be the controller of Evictions, which is
     judged: what it creates, and what it writes into a status. */}}
{{- define "usher.notByCollectors" -}}
- name: not-by-collectors
  expression: >-
    !(request.userInfo.username in [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller"])
    || request.operation == "CREATE"
    || request.?subResource.orValue("") != ""
    || (request.operation == "UPDATE" && object.?spec != oldObject.?spec)
{{- end -}}

{{/* Whether an UPDATE withdraws an EvictionRequest. */}}
{{- define "usher.withdraws" -}}
(object.?spec.?intent.orValue("") == "Withdrawn"
&& oldObject.?spec.?intent.orValue("") != "Withdrawn")
{{- end -}}

{{/* What a pod declares about its responders is new: in the pod itself, or in the template that a
     workload makes its pods from. An absent list is compared as such: most pods have none, and
     nobody is asked about them, least of all when kubelets write their status. */}}
{{- define "usher.declaresResponders" -}}
- name: declares-responders
  expression: >-
    [(request.operation == "CREATE" ? [object, dyn({})] : [object, oldObject]).map(o,
    [optional.of(o), o.?template, o.?spec.?template, o.?spec.?jobTemplate.?spec.?template].map(pod,
    [pod.?metadata.?annotations[?"usher.dev/eviction-responders"], pod.?spec.?evictionResponders]))
    ].exists(declared, declared[0] != declared[1])
{{- end -}}

{{/* Pods of these namespaces are nobody's business here: a webhook that its own pods wait for. */}}
{{- define "usher.podNamespaces" -}}
{{- $own := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (uniq (list "kube-system" .Release.Namespace)) -}}
{{- $selector := deepCopy .Values.registration.pods.namespaceSelector -}}
{{- $_ := set $selector "matchExpressions" (prepend (default list $selector.matchExpressions) $own) -}}
{{ toYaml $selector }}
{{- end -}}

{{/* cert-manager's injector goes by this annotation. */}}
{{- define "usher.injection" -}}
{{- $annotations := deepCopy .Values.registration.annotations -}}
{{- if eq .Values.certificates.source "cert-manager" -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" .Release.Namespace (include "usher.fullname" .)) -}}
{{- end -}}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Names of the certificate beside those of the Service, as a YAML list. */}}
{{- define "usher.extraNames" -}}
{{- $names := .Values.certificates.extraNames -}}
{{- with .Values.webhook.url -}}
{{- $names = append $names (get (urlParse .) "hostname") -}}
{{- end -}}
{{ toYaml (uniq $names) }}
{{- end -}}

{{/* What all containers have in common. */}}
{{- define "usher.container" -}}
image: {{ include "usher.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "usher.logArgs" -}}
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
{{- end -}}

{{/* A probe, from a list of port, path, period (s) and failures until it counts. */}}
{{- define "usher.probe" -}}
httpGet: {port: {{ index . 0 }}, path: {{ index . 1 }}}
periodSeconds: {{ index . 2 }}
failureThreshold: {{ index . 3 }}
timeoutSeconds: 5
{{- end -}}

{{/* Not empty if the context is an IP address, not a DNS name. */}}
{{- define "usher.isAddress" -}}
{{- if or (contains ":" .) (regexMatch "^[0-9.]+$" .) }}true{{ end -}}
{{- end -}}

{{/* The IP addresses among the extra names, as a YAML list. */}}
{{- define "usher.extraAddresses" -}}
{{- $found := list -}}
{{- range include "usher.extraNames" . | fromYamlArray -}}
{{- if include "usher.isAddress" . -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{ toYaml $found }}
{{- end -}}

{{/* Seconds of a span such as 2m. */}}
{{- define "usher.seconds" -}}
{{- $unit := get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) (regexFind "[smhd]$" .) -}}
{{- mul (regexFind "^[0-9]+" . | int64) $unit -}}
{{- end -}}
