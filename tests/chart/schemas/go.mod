// What the chart's objects are checked against: documents that come with these modules.
module usher.dev/tests/chart/schemas

go 1.24.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
	k8s.io/kubernetes v1.30.14
)
