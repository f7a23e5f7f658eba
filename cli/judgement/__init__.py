"""From objects to findings: what rules and checks say about manifests, and where."""
