"""The rules as functions."""
