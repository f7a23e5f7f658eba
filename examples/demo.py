"""``make run``: a webhook on localhost with a throwaway certificate, and a few reviews for it.

The reviews stand in ``reviews.yaml``; the verdicts are the answers that came back over TLS.
"""

import argparse
import json
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from rules.times import format_time, parse_time

REVIEWS: Final = Path(__file__).parent / "reviews.yaml"
WRITTEN_AT: Final = parse_time("2026-07-01T12:00:00Z")
_TIME: Final = re.compile(r"2026-07-01T\d\d:\d\d:\d\dZ")


class _Plain(yaml.SafeLoader):
    """Safe YAML whose times stay texts, as they are in JSON."""

    yaml_implicit_resolvers = {
        key: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def main() -> None:
    """Serve, ask, show; then serve on with ``--keep``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep serving until Ctrl-C")
    parser.add_argument("--port", type=int, default=9443, help="where to serve (default: 9443)")
    arguments = parser.parse_args()
    command = [
        "usher", "serve", "--self-signed", "--offline",
        "--bind", "127.0.0.1", "--health-bind", "127.0.0.1",
        "--port", str(arguments.port), "--drain-seconds", "0",
    ]  # fmt: skip
    # Being terminated ends the webhook as well, which would keep its port otherwise.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = subprocess.Popen(  # noqa: S603 - our own command
        [Path(sys.executable).parent / command[0], *command[1:]], stdout=subprocess.PIPE, text=True
    )
    try:
        certificate = _announced_certificate(server)
        show_verdicts(f"https://localhost:{arguments.port}/validate", certificate)
        if arguments.keep:
            Console().print("\nServing until Ctrl-C. Metrics: http://127.0.0.1:8080/metrics")
            server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait()


def _announced_certificate(server: "subprocess.Popen[str]") -> Path:
    """The CA that the server prints, once it serves; everything it says is passed on."""
    certificate = None
    for line in server.stdout or ():
        sys.stdout.write(line)
        found = re.search(r"(/\S+\.(?:crt|pem))", line)
        certificate = Path(found.group(1)) if found and certificate is None else certificate
        if "curl" in line and certificate is not None:
            return certificate
    sys.exit("the webhook did not start; see the lines above")


def show_verdicts(url: str, certificate: Path) -> None:
    """Send every sample review to ``url`` and print what came back."""
    trust = ssl.create_default_context(cafile=str(certificate))
    console = Console()
    for title, review in reviews(datetime.now(UTC)):  # noqa: TID251 - a client of the real world
        request = urllib.request.Request(  # noqa: S310 - https, to our own server
            url, json.dumps(review).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, context=trust) as answer:  # noqa: S310
            response = json.load(answer)["response"]
        verdict = "[green]admitted[/]" if response["allowed"] else "[red]denied[/]  "
        console.print(f"\n{verdict} {title}")
        for cause in response.get("status", {}).get("details", {}).get("causes", ()):
            console.print(f"         {cause['field']}: {cause['message']}", markup=False)
        for warning in response.get("warnings", ()):
            console.print(f"         warning: {warning}", markup=False)


def reviews(now: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sample reviews as an API server would send them at ``now``."""
    delta = now - WRITTEN_AT
    text = _TIME.sub(
        lambda found: format_time(parse_time(found.group()) + delta), REVIEWS.read_text()
    )
    for number, sample in enumerate(yaml.load(text, Loader=_Plain)):  # noqa: S506 - safe below
        group, _, version = sample["object"]["apiVersion"].rpartition("/")
        resource = f"{sample['kind'].lower()}s"
        yield (
            sample["title"],
            {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {
                    "uid": f"sample-{number}",
                    "kind": {"group": group, "version": version, "kind": sample["kind"]},
                    "resource": {"group": group, "version": version, "resource": resource},
                    "subResource": sample.get("subresource", ""),
                    "name": sample["object"]["metadata"]["name"],
                    "namespace": sample["object"]["metadata"]["namespace"],
                    "operation": sample["operation"],
                    "userInfo": {"username": sample["user"]},
                    "object": sample["object"],
                    "oldObject": sample.get("oldObject"),
                    "dryRun": False,
                },
            },
        )


if __name__ == "__main__":
    main()
