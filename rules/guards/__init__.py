"""Usher's own guards: what nothing upstream enforces. Each can be denied, warned, audited or off."""
