"""The controller: EvictionRequests become Evictions, responders take turns, evictions end."""
