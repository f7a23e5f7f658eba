{{/* Values that contradict each other, one message a line, each with the way out. */}}
{{- define "usher.contradictions" -}}
{{- $v := .Values -}}
{{- if and $v.podDisruptionBudget.enabled (lt (int $v.replicas) 2) }}
replicas is {{ int $v.replicas }}: a PodDisruptionBudget protects nothing then. Set podDisruptionBudget.enabled to false, or replicas to 2 or more.
{{- end }}
{{- if and $v.podDisruptionBudget.enabled (has (toString $v.podDisruptionBudget.maxUnavailable) (list "0" "0%")) }}
podDisruptionBudget.maxUnavailable is 0: no node with a pod of Usher could be drained. Set it to 1 or more.
{{- end }}
{{- if and (eq $v.certificates.source "secret") (not $v.certificates.existingSecret.name) }}
certificates.source is "secret", but there is no certificates.existingSecret.name. Name a Secret of type kubernetes.io/tls in the namespace {{ .Release.Namespace }}.
{{- end }}
{{- if and (ne $v.certificates.source "secret") $v.certificates.existingSecret.name }}
certificates.existingSecret.name is set, but certificates.source is {{ $v.certificates.source | quote }}. Set the source to "secret", or the name to "".
{{- end }}
{{- if and (ne $v.certificates.source "cert-manager") $v.certificates.certManager.issuerRef }}
certificates.certManager.issuerRef is set, but certificates.source is {{ $v.certificates.source | quote }}. Set the source to "cert-manager", or issuerRef to {}.
{{- end }}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) }}
serviceAccount.create is false, but there is no serviceAccount.name. The ServiceAccount "default" would become a controller, whom no guard stops: name another one.
{{- end }}
{{- if le (int $v.terminationGracePeriodSeconds) (int $v.webhook.drainSeconds) }}
terminationGracePeriodSeconds is {{ int $v.terminationGracePeriodSeconds }}, webhook.drainSeconds {{ int $v.webhook.drainSeconds }}: pods would be killed while they serve. Make the first larger, by 10 or more.
{{- end }}
{{- if and (eq $v.strategy.type "Recreate") $v.strategy.rollingUpdate }}
strategy.type is "Recreate", which has no strategy.rollingUpdate. Set that to null; or keep "RollingUpdate", with which no call fails.
{{- end }}
{{- $ports := list (int $v.webhook.port) (int $v.webhook.healthPort) }}
{{- if $v.controller.enabled }}{{ $ports = append $ports (int $v.controller.healthPort) }}{{ end }}
{{- if eq $v.certificates.source "own" }}{{ $ports = append $ports (int $v.certificates.own.healthPort) }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}
webhook.port, webhook.healthPort, controller.healthPort and certificates.own.healthPort must differ: the containers of a pod share its ports.
{{- end }}
{{- if and $v.controller.nodeHealth.enabled (not $v.controller.enabled) }}
controller.nodeHealth.enabled is true, but controller.enabled is false: nobody would do it. Enable both, or none.
{{- end }}
{{- if and $v.controller.nodeHealth.dryRun (not $v.controller.nodeHealth.enabled) }}
controller.nodeHealth.dryRun reports what controller.nodeHealth.enabled would do. Set both to true.
{{- end }}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.service) }}
metrics.serviceMonitor.enabled needs the Service that it names. Set metrics.service to true.
{{- end }}
{{- if and $v.registration.pods.policies (not $v.registration.pods.enabled) }}
registration.pods.policies is true, but registration.pods.enabled is false: policies would add responders that nobody judges. Set both to true.
{{- end }}
{{- if and $v.registration.pods.enabled (eq $v.registration.pods.failurePolicy "Fail") (lt (int $v.replicas) 2) }}
registration.pods.failurePolicy is "Fail" with {{ int $v.replicas }} replica: while it is away, {{ ternary "no pod of the cluster" "no pod that declares responders" $v.registration.pods.policies }} could be created. Set replicas to 2 or more, or the policy to "Ignore".
{{- end }}
{{- end -}}
