{{/* What the values make the program do, and no more: each rule is there for one of its parts. */}}

{{- define "usher.clusterRules" -}}
{{- $name := include "usher.fullname" . -}}
{{- $enforce := .Values.enforce -}}
{{- $mutations := .Values.webhook.mutations -}}
{{- if or (ne (index $enforce "requester-identity") "off") (ne (index $enforce "eviction-right") "off") (ne (index $enforce "responder-identity") "off") }}
# Guards of identity ask who may do what.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- if or (ne (index $enforce "target-truth") "off") (ne (index $enforce "target-pair") "off") (ne (index $enforce "target-exists") "off") (ne (index $enforce "eviction-right") "off") }}
# Guards look pods up, by the name of a target, and by its UID if that is another pod's.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list]
{{- else if and .Values.registration.mutating.enabled (has "fill-target-uid" $mutations) }}
# fill-target-uid looks pods up.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end }}
{{- if include "usher.registersResponders" . }}
# register-responders reads policies, and the labels that they select namespaces by.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [usher.dev]
  resources: [responderpolicies, clusterresponderpolicies]
  verbs: [list]
{{- if eq .Values.mode "auto" }}
# Who serves the API shows in how the API server answers; there is no Eviction of that name.
- apiGroups: [lifecycle.k8s.io]
  resources: [evictions]
  resourceNames: [usher-probe]
  verbs: [get]
{{- end }}
{{- end }}
{{- if .Values.controller.enabled }}
# The controller.
- apiGroups: [lifecycle.k8s.io]
  resources: [evictions, evictionrequests]
  verbs: [get, list, watch]
- apiGroups: [lifecycle.k8s.io]
  resources: [evictions]
  verbs: [create, patch]
- apiGroups: [lifecycle.k8s.io]
  resources: [evictions/status, evictionrequests/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list]
- apiGroups: [usher.dev]
  resources: [responderpolicies, clusterresponderpolicies]
  verbs: [list]
- apiGroups: [usher.dev]
  resources: [responderpolicies/status, clusterresponderpolicies/status]
  verbs: [patch]
{{- if .Values.controller.evictor }}
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}
{{- if ne .Values.controller.events "none" }}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
{{- if .Values.controller.standDown }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: ["system:controller:evictionrequest-controller"]
  verbs: [get]
{{- end }}
{{- $asks := and .Values.controller.nodeHealth.enabled (not .Values.controller.nodeHealth.dryRun) }}
{{- if .Values.controller.nodeHealth.enabled }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}
{{- if $asks }}
# No right to the requester's name or to pods/eviction: the webhook is not asked about these writes.
- apiGroups: [lifecycle.k8s.io]
  resources: [evictionrequests]
  verbs: [create, patch]
{{- end }}
{{- if and $asks .Values.controller.nodeHealth.deadline }}
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- end }}
{{- if or $asks .Values.controller.requestTTL }}
- apiGroups: [lifecycle.k8s.io]
  resources: [evictionrequests]
  verbs: [delete]
{{- end }}
{{- if .Values.controller.orphanTTL }}
- apiGroups: [lifecycle.k8s.io]
  resources: [evictions]
  verbs: [delete]
{{- end }}
{{- end }}
{{- if eq .Values.certificates.source "own" }}
# The agent writes caBundle. Without "create" it can't bring back a configuration that was deleted.
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingwebhookconfigurations]
  resourceNames: [{{ include "usher.validatingNames" . | fromYamlArray | join ", " }}]
  verbs: [get, patch]
{{- with include "usher.mutatingNames" . | fromYamlArray }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  resourceNames: [{{ . | join ", " }}]
  verbs: [get, patch]
{{- end }}
{{- end }}
{{- end -}}

{{- define "usher.namespacedRules" -}}
{{- if .Values.controller.enabled }}
# The Lease of the controllers. "create" can't be restricted to a name.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "usher.fullname" . }}-controller]
  verbs: [get, update]
{{- end }}
{{- if eq .Values.certificates.source "own" }}
# The Secret of CA and serving certificate.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "usher.secretName" . }}]
  verbs: [get, update]
{{- end }}
{{- end -}}
