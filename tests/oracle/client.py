"""Asks the oracle, a child process that answers JSON lines."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import IO, Any, Self

from tests.controlplane.build import binary_path

Case = Mapping[str, Any]
"""``now``, ``kind``, ``operation``, ``subresource``, ``object``, ``oldObject``; more is ignored."""
Answer = dict[str, Any]
"""``allowed`` with ``code``, ``reason``, ``causes`` when false; or ``panic``; or ``error``."""

_ASKED = ("now", "kind", "operation", "subresource", "object", "oldObject")


class OracleError(Exception):
    """The oracle ended before it had answered everything."""


class Oracle:
    """A running oracle.

    >>> with Oracle() as oracle:
    ...     answers = oracle.ask(cases)

    One thread at a time may ask. The program ends with its standard input, so it can't outlive the
    tests.
    """

    def __init__(self) -> None:
        """Prepare an oracle; ``with`` builds (once) and starts it."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [binary_path("oracle")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def ask(self, cases: Iterable[Case]) -> list[Answer]:
        """Return one answer for each case, in order.

        Raises ``OracleError`` when the program is not running or ends on the way.
        """
        lines = [_encode(case) for case in cases]
        stdin, answers = self._pipes()
        # Written aside: with both pipes full, writer and oracle would wait for each other.
        writer = threading.Thread(target=_write, args=(stdin, lines), daemon=True)
        writer.start()
        answered = [_next_answer(answers) for _ in lines]
        writer.join()
        return answered

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise OracleError("the oracle is not running")
        return process.stdin, process.stdout


def _encode(case: Case) -> bytes:
    return json.dumps({key: case.get(key) for key in _ASKED}).encode() + b"\n"


def _write(stdin: IO[bytes], lines: list[bytes]) -> None:
    # A dead oracle is reported by whoever reads the answers.
    with contextlib.suppress(BrokenPipeError):
        stdin.writelines(lines)
        stdin.flush()


def _next_answer(answers: IO[bytes]) -> Answer:
    line = answers.readline()
    if not line:
        raise OracleError("the oracle ended before it had answered everything")
    answer: Answer = json.loads(line)
    return answer
