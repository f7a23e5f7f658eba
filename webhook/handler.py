"""One request of an API server, from its bytes to the bytes of the answer."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache, partial
from math import inf
from time import perf_counter
from typing import Final
from urllib.parse import parse_qs

import structlog
from aiohttp import hdrs, web

from cluster.facts import Finder, SilentClusterError
from rules.decode import DecodeError
from rules.evaluate import Policy
from rules.facts import NO_FACTS, Facts
from rules.mutate import MutationPolicy
from rules.texts import cut, printable
from rules.times import parse_duration
from webhook.bounds import UID, Bounds, Handler, OverloadedError
from webhook.endpoints import Endpoint, Mutating, Pending, Validating
from webhook.metrics import Metrics
from webhook.review import Review, decode
from webhook.settings import ANSWER_MARGIN_SECONDS, Settings

PATH: Final = "/validate"
MUTATE_PATH: Final = "/mutate"
_JSON: Final = "application/json"

_log = structlog.get_logger()

_MAX_DETAIL: Final = 300
"""Characters of an error's text, in a refusal and in a log line. Our own choice."""


class Reviews:
    """Answers admission reviews."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        metrics: Metrics,
        clock: Callable[[], datetime],
        finder: Finder,
        bounds: Bounds,
    ) -> None:
        self._timeout = settings.timeout
        self._endpoints: dict[str, Endpoint] = {
            PATH: Validating(policy, metrics),
            MUTATE_PATH: Mutating(MutationPolicy(settings.mutations, settings.mode), metrics),
        }
        self._metrics = metrics
        self._clock = clock
        self._finder = finder
        self._bounds = bounds

    def application(self) -> web.Application:
        """What is served."""
        app = web.Application(middlewares=[self._count_refusals])
        for path, endpoint in self._endpoints.items():
            app.router.add_post(path, partial(self._answer, endpoint))
        return app

    @web.middleware
    async def _count_refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as refusal:
            self._metrics.failed(refusal.status)
            if isinstance(refusal, OverloadedError):
                self._metrics.shed.inc()
            # Not the exception itself: aiohttp keeps it until the next request of the connection,
            # and with it, in the frames of its traceback, the body.
            return web.Response(status=refusal.status, body=refusal.body, headers=refusal.headers)

    async def _answer(self, endpoint: Endpoint, request: web.Request) -> web.Response:
        began = perf_counter()
        seconds = min(_seconds(request.raw_path), self._timeout)
        _check_media(request)
        body = await self._bounds.read(request, seconds)
        try:
            review = decode(body, self._clock())
            request[UID] = review.uid
            pending = endpoint.take(review, began)
        except DecodeError as error:
            _log.info("refused", code=400, error=str(error))
            raise web.HTTPBadRequest(text=f"{cut(printable(str(error)), _MAX_DETAIL)}\n") from None
        questions = pending.questions
        facts = self._finder.recall(review.user, questions) if questions else NO_FACTS
        if facts is None:
            with self._bounds.place(len(body)):
                facts = await self._find(review, pending, began + seconds - perf_counter())
        return web.Response(body=pending.decide(facts), content_type=_JSON)

    async def _find(self, review: Review, pending: Pending, seconds: float) -> Facts:
        try:
            async with asyncio.timeout(seconds):
                return await self._finder.find(review.user, pending.questions, seconds)
        except (SilentClusterError, TimeoutError) as error:
            # No answer is no denial, and no half of a change: failurePolicy decides.
            _log.error("the cluster does not answer", uid=review.uid, error=str(error) or "in time")
            text = "the cluster gave no answer on which this one depends; see the log\n"
            raise web.HTTPInternalServerError(text=text) from None


def _check_media(request: web.Request) -> None:
    headers = request.headers
    if not _is_json(headers.get(hdrs.CONTENT_TYPE, "")):
        text = "Content-Type must be application/json in UTF-8\n"
    elif headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower() != "identity":
        text = "the body may not be compressed\n"
    else:
        return
    raise web.HTTPUnsupportedMediaType(text=text)


@lru_cache(maxsize=64)
def _seconds(target: str) -> float:
    """How long an answer to ``target`` may take; infinite without a usable ``?timeout=``."""
    asked = parse_duration(parse_qs(target.partition("?")[2]).get("timeout", [""])[0])
    if not asked:
        return inf
    # A caller that waits for less than the margin gets half of its time.
    return max(asked - ANSWER_MARGIN_SECONDS, asked / 2)


@lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    media, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [
        value.strip('"')
        for name, _, value in (parameter.partition("=") for parameter in parameters)
        if name == "charset"
    ]
    return media == _JSON and all(charset == "utf-8" for charset in charsets)
