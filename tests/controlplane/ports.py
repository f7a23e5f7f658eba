"""Ports on loopback."""

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that is free now. Somebody else may take it before it is used."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port
