"""What must hold for every input, tried on many."""
