"""What a Service is to a webhook: one address, and connections to whoever is behind it now."""

import selectors
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65536


class Service:
    """Forwards connections on :attr:`port`; open ones stay where they are, as in a cluster."""

    def __init__(self, server: socketserver.ThreadingTCPServer) -> None:
        self.port: int = server.server_address[1]
        self.backend = 0
        """The port that new connections lead to."""


@contextmanager
def running_service() -> Iterator[Service]:
    """A service without a backend yet."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection((_HOST, service.backend)) as backend:
                _pump(self.request, backend)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    with Server((_HOST, 0), Forward) as server:
        service = Service(server)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def _pump(client: socket.socket, backend: socket.socket) -> None:
    """Copy both ways until both sides have said all they had to say."""
    other = {client: backend, backend: client}
    with selectors.DefaultSelector() as selector:
        for each in other:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                data = source.recv(_CHUNK)
                if data:
                    other[source].sendall(data)
                else:
                    selector.unregister(source)
                    other[source].shutdown(socket.SHUT_WR)
