"""What ``usher nodes`` reads and how it shows what follows from it."""
