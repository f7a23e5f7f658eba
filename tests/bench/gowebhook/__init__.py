"""The Go peer of the benchmarks and its smoke test."""
