"""Ports on loopback."""

import socket

HOST = "127.0.0.1"
PORT_ATTEMPTS = 3
"""How often to look for a port, where somebody else was quicker."""
PORT_TAKEN = "address already in use"
"""What each of the programs says then, in one of its last words."""


def free_port() -> int:
    """Return a port that is free now. Somebody else may take it before it is used."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port
