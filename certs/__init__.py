"""Certificates: issuing is pure, storing and watching are not."""
