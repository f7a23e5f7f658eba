"""What ``make run`` starts."""

import os
import socket
import subprocess
import sys


def test_a_terminated_demo_takes_its_webhook_along() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--keep", "--port", str(port)],
        env=os.environ | {"USHER_HEALTH_PORT": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        assert any("Serving until" in line for line in demo.stdout)
        socket.create_connection(("127.0.0.1", port)).close()
        demo.terminate()
    assert demo.returncode == 0
    with socket.socket() as asked:
        assert asked.connect_ex(("127.0.0.1", port)) != 0
