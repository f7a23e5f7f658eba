"""What pods and pod templates declare about their eviction."""
