"""One request of an API server, from its bytes to the bytes of the answer."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import lru_cache
from http import HTTPMethod, HTTPStatus
from math import inf
from time import perf_counter
from typing import Any, Final
from urllib.parse import parse_qs

import structlog
from aiohttp import hdrs
from aiohttp.http import RawRequestMessage

from rules.decode import DecodeError
from rules.evaluate import Policy
from rules.facts import NO_FACTS
from rules.mutate import MutationPolicy
from webhook.connection import TEXT, Reply
from webhook.endpoints import Endpoint, Mutating, Pending, Validating
from webhook.facts import Finder, SilentClusterError
from webhook.metrics import Metrics
from webhook.review import Review, cut, decode, printable
from webhook.settings import ANSWER_MARGIN_SECONDS, Settings

PATH: Final = "/validate"
MUTATE_PATH: Final = "/mutate"
_PATHS: Final = (PATH, MUTATE_PATH)

_log = structlog.get_logger()

_MAX_DETAIL: Final = 300
"""Characters of an error's text, in a refusal and in a log line. Our own choice."""


class Validator:
    """Answers admission reviews. Every method returns at once; none raises."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        metrics: Metrics,
        clock: Callable[[], datetime],
        finder: Finder,
    ) -> None:
        self._timeout = settings.timeout
        self._endpoints: dict[str, Endpoint] = {
            PATH: Validating(policy, metrics),
            MUTATE_PATH: Mutating(MutationPolicy(settings.mutations, settings.mode), metrics),
        }
        self._metrics = metrics
        self._clock = clock
        self._finder = finder

    def begin(self, head: RawRequestMessage) -> Reply | float:
        """Refuse what is no admission review by its head, or say how long its body may take."""
        seconds = _seconds(head.path)
        if seconds is None:
            return self.refuse(HTTPStatus.NOT_FOUND, f"only {' and '.join(_PATHS)} are served")
        if head.method != HTTPMethod.POST:
            reply = self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, "must be POST")
            return reply._replace(allow=b"POST")
        headers = head.headers
        if not _is_json(headers.get(hdrs.CONTENT_TYPE, "")):
            return self.refuse(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json in UTF-8"
            )
        if headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower() != "identity":
            return self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body may not be compressed")
        return min(seconds, self._timeout)

    def answer(
        self, head: RawRequestMessage, body: bytes, began: float
    ) -> Reply | Coroutine[Any, Any, Reply]:
        """Answer the review in ``body``; a coroutine where the cluster has to be asked first."""
        review = None
        try:
            review = decode(body, self._clock())
            pending = self._endpoints[head.path.partition("?")[0]].take(review, began)
            questions = pending.questions
            facts = self._finder.recall(review.user, questions) if questions else NO_FACTS
            if facts is not None:
                return pending.decide(facts)
        except DecodeError as error:
            _log.info("refused", code=400, error=str(error))
            return self.refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:  # noqa: BLE001 - our bug, whatever it is: failurePolicy decides
            return self._fail(review)
        seconds = min(_seconds(head.path) or inf, self._timeout)
        return self._answer_later(review, pending, began, seconds)

    async def _answer_later(
        self, review: Review, pending: Pending, began: float, seconds: float
    ) -> Reply:
        try:
            left = seconds - (perf_counter() - began)
            async with asyncio.timeout(left):
                facts = await self._finder.find(review.user, pending.questions, left)
            return pending.decide(facts)
        except (SilentClusterError, TimeoutError) as error:
            # No answer is no denial, and no half of a change: failurePolicy decides.
            _log.error("the cluster does not answer", uid=review.uid, error=str(error) or "in time")
            detail = "the cluster gave no answer on which this one depends; see the log"
            return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
        except Exception:  # noqa: BLE001 - as above
            return self._fail(review)

    def _fail(self, review: Review | None) -> Reply:
        _log.exception("failed", uid=review.uid if review else "")
        return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log")

    def refuse(self, status: int, detail: str) -> Reply:
        """Count and answer a request that can't be judged."""
        self._metrics.failed(status)
        return Reply(status, f"{cut(printable(detail), _MAX_DETAIL)}\n".encode(), TEXT)

    def overloaded(self) -> Reply:
        """Count and answer a request for which there is no room."""
        self._metrics.shed.inc()
        return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "too many requests are waiting")


@lru_cache(maxsize=64)
def _seconds(target: str) -> float | None:
    """How long the body of a request to ``target`` may take; None for another path than ours.

    Infinite without a usable ``?timeout=``.
    """
    path, _, query = target.partition("?")
    if path not in _PATHS:
        return None
    asked = _duration(parse_qs(query).get("timeout", [""])[0])
    if not asked:
        return float("inf")
    # A caller that waits for less than the margin gets half of its time.
    return max(asked - ANSWER_MARGIN_SECONDS, asked / 2)


_MAX_DURATION: Final = 64
"""In characters; no caller writes a longer one."""
_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\N{MICRO SIGN}s": 1e-6,
    "\N{GREEK SMALL LETTER MU}s": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "m": 60,
    "h": 3600,
}
_PART: Final = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_UNITS)})"
_is_duration = re.compile(rf"\+?(?:{_PART})+", re.ASCII).fullmatch
_parts = re.compile(_PART, re.ASCII).findall


def _duration(text: str) -> float:
    """Seconds of ``text`` as Go's ``time.ParseDuration`` reads it; 0 where that isn't positive."""
    if len(text) > _MAX_DURATION or not _is_duration(text):
        return 0
    return sum(float(number) * _UNITS[unit] for number, unit in _parts(text))


@lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    media, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [
        value.strip('"')
        for name, _, value in (parameter.partition("=") for parameter in parameters)
        if name == "charset"
    ]
    return media == "application/json" and all(charset == "utf-8" for charset in charsets)
