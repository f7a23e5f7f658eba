{{/* The alerts: `.own` selects the metrics of this release, `.values` are the chart's values. */}}
{{- define "usher.alerts" -}}
{{- $own := .own -}}
{{- $validating := .values.registration.validating.timeoutSeconds -}}
{{- $mutating := .values.registration.mutating.timeoutSeconds -}}
- alert: UsherWebhookAbsent
  expr: absent(up{ {{- $own }},endpoint="webhook-health"} == 1)
  for: 5m
  severity: {{ ternary "critical" "warning" (eq .failurePolicy "Fail") }}
  summary: No replica of Usher's webhook answers.
  description: >-
    {{ ternary "Writes of Evictions and EvictionRequests fail meanwhile (failurePolicy Fail)." "Writes of Evictions and EvictionRequests are judged by nobody meanwhile (failurePolicy Ignore)." (eq .failurePolicy "Fail") }}
- alert: UsherWebhookErrors
  expr: |-
    sum(rate(usher_webhook_errors_total{ {{- $own }}}[5m]))
      / sum(rate(usher_webhook_requests_total{ {{- $own }}}[5m])) > 0.01
  for: 5m
  severity: critical
  summary: More than 1 % of the requests to Usher's webhook get no verdict.
  description: failurePolicy decides on them. The log of the container webhook has a line for each.
- alert: UsherWebhookOverloaded
  expr: sum(rate(usher_webhook_shed_total{ {{- $own }}}[5m])) > 0
  for: 5m
  severity: warning
  summary: Usher's webhook refuses requests because too many are waiting.
  description: Raise webhook.workers or replicas.
{{- range $webhook, $timeout := dict "validating" $validating "mutating" $mutating }}
- alert: UsherWebhookSlow
  expr: |-
    histogram_quantile(0.99, sum by (le) (
      rate(usher_webhook_request_duration_seconds_bucket{ {{- $own }},webhook="{{ $webhook }}"}[5m])
    )) > {{ divf $timeout 2 }}
  for: 5m
  severity: warning
  summary: Usher's {{ $webhook }} webhook takes more than half of its timeout.
  description: One request in a hundred waits longer than {{ divf $timeout 2 }} s; API servers give up after {{ int $timeout }} s.
{{- end }}
- alert: UsherWebhookFailsOpen
  expr: |-
    sum by (name) (
      increase(apiserver_admission_webhook_fail_open_count{name=~"(pods[.])?(validate|mutate)[.]usher[.]dev"}[10m])
    ) > 0
  severity: warning
  summary: API servers let writes pass that Usher's webhook did not judge.
  description: They could not reach it in time, and its failurePolicy is Ignore.
- alert: UsherCertificateExpires
  expr: |-
    min(
      (usher_webhook_certificate_not_after_timestamp_seconds{ {{- $own }}} - time())
        / (usher_webhook_certificate_not_after_timestamp_seconds{ {{- $own }}}
          - usher_webhook_certificate_not_before_timestamp_seconds{ {{- $own }}})
    ) < 0.25
  for: 5m
  severity: critical
  summary: The certificate that Usher's webhook serves has less than a quarter of its life left.
  description: It is renewed at a third. After its end API servers refuse to call the webhook.
- alert: UsherCertificateUnusable
  expr: increase(usher_webhook_certificate_reload_failures_total{ {{- $own }}}[10m]) > 0
  severity: warning
  summary: Usher's webhook was given a certificate that it can't use.
  description: It goes on with the last good one. The log of the container webhook says why.
{{- if eq .values.certificates.source "own" }}
- alert: UsherAuthorityExpires
  expr: |-
    min(
      (usher_certs_not_after_timestamp_seconds{ {{- $own }},certificate="ca"} - time())
        / (usher_certs_not_after_timestamp_seconds{ {{- $own }},certificate="ca"}
          - usher_certs_not_before_timestamp_seconds{ {{- $own }},certificate="ca"})
    ) < 0.25
  for: 5m
  severity: critical
  summary: Usher's CA has less than a quarter of its life left.
  description: It is renewed at a third. The log of the container certs says what is in the way.
- alert: UsherCaBundleOutOfSync
  expr: min by (resource, name) (usher_certs_ca_bundle_in_sync{ {{- $own }}}) == 0
  for: 5m
  severity: critical
  summary: The caBundle of a webhook configuration of Usher's does not hold its CAs.
  description: API servers can't call the webhook. The log of the container certs says what is in the way.
{{- end }}
{{- if .values.controller.enabled }}
- alert: UsherNoLeader
  expr: |-
    (sum(usher_controller_lease_held{ {{- $own }}}) or vector(0)) == 0
      unless (sum(usher_controller_stood_down{ {{- $own }}}) > 0)
  for: 2m
  severity: critical
  summary: No controller of Usher's leads.
  description: Nothing becomes of EvictionRequests meanwhile. /readyz of the container controller says why.
- alert: UsherWatchSilent
  expr: max by (pod, resource) (usher_controller_watch_age_seconds{ {{- $own }}}) > 600
  severity: warning
  summary: A controller of Usher's has heard nothing of a resource for 10 minutes.
  description: It plans by what it knew then.
- alert: UsherEvictionOverdue
  # Every responder that is silent takes 20 minutes, the evictor comes last.
  expr: max(usher_controller_oldest_active_eviction_seconds{ {{- $own }}}) > {{ mul (add1 (int .values.webhook.responseBudget)) 1200 }}
  for: 5m
  severity: warning
  summary: An Eviction takes longer than its responders may be silent for.
  description: kubectl get evictions -A shows it; its status and events say who is at work.
- alert: UsherPlannedWriteRefused
  expr: sum(increase(usher_controller_planned_writes_refused_total{ {{- $own }}}[10m])) > 0
  severity: warning
  summary: Usher's controller planned a write that its own rules refuse.
  description: It was not sent. This is a bug; the log of the container controller has the write.
{{- if .values.controller.nodeHealth.enabled }}
- alert: UsherZoneDisrupted
  expr: max by (region, zone) (usher_controller_node_health_zone_state{ {{- $own }},state!="normal"}) == 1
  for: 5m
  severity: warning
  summary: So many nodes of a zone have failed that evictions are slowed down or stopped.
  description: usher nodes shows the zones, and what would be evicted when.
{{- end }}
- alert: UsherClockWrong
  expr: max by (pod) (abs(usher_controller_clock_ahead_seconds{ {{- $own }}})) > 30
  for: 5m
  severity: warning
  summary: The clock of a node with a controller of Usher's is wrong by more than 30 seconds.
  description: API servers refuse the times that it reports.
{{- end }}
{{- end -}}
