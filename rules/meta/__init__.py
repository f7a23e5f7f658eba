"""Rules about what every Kubernetes object carries: metadata and conditions."""
