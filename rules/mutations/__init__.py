"""What Usher changes in a write, one module each: optional, idempotent, and audited."""
