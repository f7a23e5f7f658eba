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
    sum(rate(usher_webhook_errors_total{ {{- $own }},code=~"5.."}[5m]))
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
  description: Raise replicas.
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
      increase(apiserver_admission_webhook_fail_open_count{name=~"((pods|withdrawals)[.])?(validate|mutate)[.]usher[.]dev"}[10m])
    ) > 0
  severity: warning
  summary: API servers let writes pass that Usher's webhook did not judge.
  description: They could not reach it in time, and its failurePolicy is Ignore.
- alert: UsherWebhookUnreachable
  # Told by API servers: what does not arrive is no error to Usher, whose pods may all be well.
  expr: |-
    sum by (name) (
      increase(apiserver_admission_webhook_rejection_count{name=~"((pods|withdrawals)[.])?(validate|mutate)[.]usher[.]dev",error_type="calling_webhook_error"}[10m])
    ) > 0
  for: 5m
  severity: critical
  summary: API servers refuse writes because they can't reach Usher's webhook.
  description: Its failurePolicy is Fail. Firewalls, network policies, DNS, or a caBundle that is not Usher's.
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
- alert: UsherCertificateAgentAbsent
  expr: absent(usher_certs_not_after_timestamp_seconds{ {{- $own }},certificate="ca"})
  for: 15m
  severity: warning
  summary: Nobody hears of Usher's CA.
  description: Alerts about the CA and caBundles can't fire meanwhile. Either the port certs-health is not scraped, or the container certs does not run.
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
- alert: UsherTwoLeaders
  expr: sum(usher_controller_lease_held{ {{- $own }}}) > 1
  for: 2m
  severity: critical
  summary: More than one controller of Usher's takes itself for the leader.
  description: The Lease names the right one in holderIdentity. What the other writes is refused where it contradicts.
- alert: UsherWatchSilent
  expr: max by (pod, resource) (usher_controller_watch_age_seconds{ {{- $own }}}) > 600
  severity: warning
  summary: A controller of Usher's has heard nothing of a resource for 10 minutes.
  description: It plans by what it knew then.
- alert: UsherWorkFails
  # Conflicts are ordinary: somebody else has written at the same time.
  expr: sum by (work, kind) (increase(usher_controller_failures_total{ {{- $own }},kind!="Conflict"}[10m])) > 0
  for: 20m
  severity: warning
  summary: Work of Usher's controller keeps failing ({{ "{{" }} $labels.work }}, {{ "{{" }} $labels.kind }}).
  description: It is tried again for ever. Denied is a missing permission, bug is ours. The log of the container controller names object and reason.
- alert: UsherQueueSlow
  expr: |-
    histogram_quantile(0.99, sum by (work, le) (
      rate(usher_controller_queue_wait_seconds_bucket{ {{- $own }}}[10m])
    )) > 10
  for: 10m
  severity: warning
  summary: Work of Usher's controller waits for more than 10 seconds ({{ "{{" }} $labels.work }}).
  description: API servers or a webhook on evictions answer slowly, or controller.concurrency is too low.
- alert: UsherEvictionOverdue
  # Every responder that is silent takes 20 minutes, the evictor comes last.
  expr: |-
    max by (target_namespace, reason) (
      usher_controller_oldest_active_eviction_seconds{ {{- $own }}
        {{- with .values.metrics.prometheusRule.ignoredNamespaces }},target_namespace!~"{{ join "|" . }}"{{ end }}}
    ) > {{ mul (add1 (int .values.webhook.responseBudget)) 1200 }}
  for: 5m
  severity: warning
  summary: An Eviction in namespace {{ "{{" }} $labels.target_namespace }} takes longer than its responders may be silent for ({{ "{{" }} $labels.reason }}).
  description: kubectl get evictions -n {{ "{{" }} $labels.target_namespace }} shows it; its status and events say who is at work.
- alert: UsherObjectsPileUp
  # For so many, with 20,000 pods, the memory of the controller is tested.
  expr: sum(usher_controller_stored_objects{ {{- $own }},resource=~"evictions|evictionrequests"}) > 20000
  for: 15m
  severity: warning
  summary: More than 20,000 Evictions and EvictionRequests are stored.
  description: Every replica of the controller keeps them in memory. What has ended goes after controller.requestTTL and controller.orphanTTL.
{{- with dig "limits" "memory" "" .values.controller.resources }}
{{- with include "usher.bytes" . }}
- alert: UsherControllerMemory
  expr: max by (pod) (process_resident_memory_bytes{ {{- $own }},endpoint="control-health"}) > {{ int64 (mulf (float64 .) 0.85) }}
  for: 10m
  severity: warning
  summary: A controller of Usher's uses more than 85 % of its memory limit.
  description: Leader and standbys hold the same and would be killed together. Raise controller.resources, or have what has ended removed.
{{- end }}
{{- end }}
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
- alert: UsherNodesWait
  expr: |-
    max by (region, zone) (usher_controller_node_health_zone_queue_length{ {{- $own }}}) > 0
      and on (region, zone) max by (region, zone) (usher_controller_node_health_zone_eviction_rate{ {{- $own }}}) == 0
  for: 10m
  severity: warning
  summary: Pods of failed nodes in zone {{ "{{" }} $labels.zone }} are due, and none of them is asked to leave.
  description: So many nodes there have failed that evictions are stopped. Where that is no network partition, evict by hand.
- alert: UsherNodePodsStay
  # One responder that died with its node is silent for 20 minutes. Half an hour is our own choice.
  expr: max(usher_controller_node_health_oldest_request_seconds{ {{- $own }}}) > 1800
  for: 5m
  severity: warning
  summary: A pod was asked more than half an hour ago to leave a failed or tainted node, and has not begun to go.
  description: A PodDisruptionBudget refuses its eviction, or a responder that died with its node is waited for. usher nodes lists the pods whose budgets refuse.
{{- end }}
- alert: UsherClockWrong
  expr: max by (pod) (abs(usher_controller_clock_ahead_seconds{ {{- $own }}})) > 30
  for: 5m
  severity: warning
  summary: The clock of a node with a controller of Usher's is wrong by more than 30 seconds.
  description: Nothing is planned by it, but logs, events and certificates have its times.
{{- end }}
{{- end -}}

{{/* A quantity of memory in bytes; nothing where it has a unit that nobody uses for memory. */}}
{{- define "usher.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if not (kindIs "string" .) }}{{ int64 . }}{{- else -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $unit := trimPrefix $number . -}}
{{- if and $number (hasKey $units $unit) }}{{ int64 (mulf (float64 $number) (float64 (get $units $unit))) }}{{ end -}}
{{- end -}}
{{- end -}}
