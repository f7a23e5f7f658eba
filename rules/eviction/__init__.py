"""Behaviour of an Eviction's status: conditions, the state machine, and what responders report."""
