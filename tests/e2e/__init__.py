"""End to end: real API servers, the real ``usher serve``, the real kubectl."""
