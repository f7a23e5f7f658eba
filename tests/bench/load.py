"""Load by wrk: the same body again and again, on kept connections, from one core."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.servers import LOAD_CORE, Server

_SCRIPT: Final = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept-Encoding"] = "gzip"
local file = assert(io.open("BODY", "rb"))
wrk.body = file:read("*a")
file:close()
done = function(summary, latency, requests)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  local result = '{"requests": %d, "duration": %d, "errors": %d, "p50": %d, "p99": %d}'
  io.write("RESULT " .. string.format(result, summary.requests, summary.duration, errors,
    latency:percentile(50), latency:percentile(99)) .. "\\n")
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of load; latencies in milliseconds."""

    requests: int
    per_second: float
    p50: float
    p99: float
    errors: int
    processor: float
    """Microseconds of the server's processor time for one request; less prone to noise."""


def press(server: Server, body: bytes, folder: Path, *, connections: int, seconds: int) -> Load:
    """Send ``body`` to ``server`` over ``connections`` connections for ``seconds``."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SystemExit("wrk is needed for load: install Debian's package of that name")
    (folder / "body.json").write_bytes(body)
    script = folder / "post.lua"
    script.write_text(_SCRIPT.replace("BODY", str(folder / "body.json")))
    command = [
        "taskset", "-c", LOAD_CORE, wrk, "--threads", "1", "--connections", str(connections),
        "--duration", f"{seconds}s", "--timeout", "10s", "--script", str(script), server.url,
    ]  # fmt: skip
    began = server.processor_seconds()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"wrk said: {output}")
    figures = json.loads(found.group(1))
    return Load(
        requests=figures["requests"],
        per_second=figures["requests"] / figures["duration"] * 1e6,
        p50=figures["p50"] / 1000,
        p99=figures["p99"] / 1000,
        errors=figures["errors"],
        processor=(server.processor_seconds() - began) / max(figures["requests"], 1) * 1e6,
    )
