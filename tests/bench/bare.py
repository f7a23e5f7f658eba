"""The least that a webhook on this stack can do: aiohttp.web, TLS, one msgspec decode, "allowed".

It has no rules, no bounds and no metrics; beside it one sees what they cost, and how much of a
request belongs to the stack.
"""

import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web
from msgspec import Struct

from rules.api import Eviction
from rules.decode import read


class Request(Struct, rename="camel"):
    """What is decoded of a request."""

    uid: str
    object: Eviction
    old_object: Eviction


class Review(Struct):
    """An AdmissionReview."""

    request: Request


async def admit(request: web.Request) -> web.Response:
    """Decode the review and admit it."""
    review = read(Review, await request.read())
    response = {"uid": review.request.uid, "allowed": True}
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return web.json_response({**kind, "response": response})


def main(port: str, folder: str) -> None:
    """Serve on ``port`` with the certificate in ``folder``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_post("/validate", admit)
    web.run_app(
        app, host="127.0.0.1", port=int(port), ssl_context=context, access_log=None, print=None,
        loop=uvloop.new_event_loop(),
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
