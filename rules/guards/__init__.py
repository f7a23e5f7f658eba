"""What nothing upstream enforces. Each can be set to deny, warn, audit or off."""
