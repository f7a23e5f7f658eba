"""Usher against the oracle, on cases that nobody has seen before."""
