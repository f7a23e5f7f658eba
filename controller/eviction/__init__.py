"""The core: one Eviction for each pod that has to go, moved on from responder to responder."""
