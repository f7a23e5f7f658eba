"""The controller's pure core: from what can be seen, and the instant, to what is to be written.

No clock, no I/O, no client, no logging: standard library, msgspec and :mod:`rules` only.
"""
