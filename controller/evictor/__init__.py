"""The default evictor: the responder that calls the eviction API when all others are done."""
