"""The rules of ``lifecycle.k8s.io/v1alpha1``: pure functions from a request to a verdict.

Nothing in this package reads a clock, a file, a socket or the environment. Callers hand in the
objects, the instant and the policy; :func:`rules.evaluate.evaluate` answers with every violation.
"""
