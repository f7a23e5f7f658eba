"""Eviction from failing nodes, at zone-aware rates. Off by default."""
