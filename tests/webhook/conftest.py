"""One server for all tests that leave it as it was."""

import io
from collections.abc import Iterator

import pytest

from cli import logs
from tests.webhook.running import Running, running


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with the default settings; its clock stands at ``reviews.NOW``."""
    with pytest.MonkeyPatch.context() as patch:
        # Clients that only wait for the end of a refused connection need not wait long.
        patch.setattr("webhook.serving.LINGER_SECONDS", 0.1)
        patch.setattr("webhook.serving.SWEEP_SECONDS", 0.02)
        with running(tmp_path_factory.mktemp("site")) as server:
            yield server


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """The log lines of a test, in JSON; none may carry a traceback."""
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    yield stream
    assert "Traceback" not in stream.getvalue()
