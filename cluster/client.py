"""Requests to the API server. Paths and documents are plain, as kubectl's with ``-v 8``."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import aiohttp
import msgspec
import structlog
from msgspec import Raw, field

from cluster import clock
from cluster.configuration import Access, Configuration, ConfigurationError
from cluster.connections import make_connector
from cluster.failures import (
    Busy,
    BusySource,
    ClusterFailure,
    Conflict,
    Denied,
    Gone,
    Missing,
    Refused,
    ServerFailure,
    Silent,
    Unauthenticated,
    Unreachable,
    Untrusted,
)
from cluster.key import Key
from cluster.pauses import JITTER, jittered
from cluster.resources import PODS, Resource
from cluster.server_time import SETTLING, ServerTime
from rules.api import ApiType
from rules.decode import DecodeError, Encoded, read
from rules.states import CLOCK_SKEW

Document = dict[str, Any]
Observe = Callable[[str, str, str, float], None]
"""Is told of each request: the verb and the resource (``evictions/status``) in the words of a Role,
the HTTP status as text or :data:`NO_ANSWER`, and the seconds until the answer began."""

_log = structlog.get_logger()

PAGE: Final = 500
"""Objects of one page of a list (what client-go asks for)."""
WATCH_SECONDS: Final = 300
"""After which the API server ends a watch, or a fifth later: not all of them at the same time."""
_WATCH_SILENCE_SECONDS: Final = 150.0
"""API servers send a bookmark about once a minute, without a promise. Who did and is silent for so
long may be gone, behind something that keeps the connection open."""
_WATCH_PATIENCE_SECONDS: Final = WATCH_SECONDS * (1 + JITTER) + 60.0
"""Longer than the API server's own limit, so that a watch ends by its hand, not by ours."""
_PATIENCE_SECONDS: Final = 30.0
"""For one request; admission webhooks may take up to 30 s."""
_CONNECT_SECONDS: Final = 10.0
_LIMITS: Final = aiohttp.ClientTimeout(total=_PATIENCE_SECONDS, sock_connect=_CONNECT_SECONDS)
_WATCH_LIMITS: Final = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
_BUFFER_BYTES: Final = 2**21
"""For one event of a watch: more than etcd takes for an object (1.5 MiB)."""
_APPLY: Final = "application/apply-patch+yaml"
_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_VERSION: Final = Resource("", "", "version")
PROBE: Final = "usher-probe"
"""An object that is asked for to see in what form the answer comes."""
NO_ANSWER: Final = "<error>"
"""In place of an HTTP status; client-go's metrics call it so."""
_TERMINATING: Final = "NamespaceTerminating"
_DISRUPTION_BUDGET: Final = "DisruptionBudget"
"""Reason of the causes by which budgets refuse an eviction (``policyv1.DisruptionBudgetCause``)."""
_is_of_admission: Final = re.compile(
    r"admission webhook \".*\" denied the request|ValidatingAdmissionPolicy '.*' denied request: ",
    re.DOTALL,
).search
"""How the API server introduces what admission says (``ToStatusErr`` of its webhooks; the validator
of policies)."""
_is_of_authorizer: Final = re.compile(r'(\S+( "[^"]*")? is )?forbidden: User "').match
"""How the API server's authorizer refuses (``forbiddenMessage``). Admission uses the same code, and
says what it likes."""


ItemT = TypeVar("ItemT")


class Page(NamedTuple, Generic[ItemT]):
    """A part of a list."""

    items: list[ItemT]
    version: str
    """The resource version of the whole list, from which a watch goes on."""


class WatchEvent(NamedTuple):
    """``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object."""

    type: str
    object: Encoded


class _ListMeta(ApiType):
    resource_version: str = ""
    more: str = field(name="continue", default="")


class _List(ApiType):
    """Any list, its items as they came."""

    metadata: _ListMeta = _ListMeta()
    items: list[Raw] | None = None


class _Event(ApiType):
    """``metav1.WatchEvent``."""

    type: str
    object: Raw


class _Call(NamedTuple):
    """What a request asks for, in the words of a Role."""

    verb: str
    resource: Resource
    namespace: str = ""
    subresource: str = ""

    @property
    def name(self) -> str:
        """The resource with its subresource."""
        return "/".join(filter(None, (self.resource.name, self.subresource)))

    def __str__(self) -> str:
        scope = f" in namespace {self.namespace}" if self.namespace else " in all of the cluster"
        return f'{self.verb} {self.name} of API group "{self.resource.group}"{scope}'


class _Request(NamedTuple):
    method: str
    call: _Call
    path: str
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    content_type: str = _JSON
    accept: str = _JSON
    limits: aiohttp.ClientTimeout = _LIMITS


class Cluster:
    """One API server, as the user that the configuration names.

    Every method raises a :class:`cluster.failures.ClusterFailure`, and may be cancelled.
    """

    def __init__(
        self, kubeconfig: Path | None, agent: str, *, observe: Observe | None = None
    ) -> None:
        """Prepare; ``kubeconfig`` None means the service account of the pod around us.

        ``agent`` is how API servers know the program in their logs. ``observe`` is told of every
        request; of a watch only until it stands.
        """
        self._configuration = Configuration(kubeconfig)
        self._agent = agent
        self._observe = observe
        self._session: aiohttp.ClientSession
        self.time = ServerTime()
        """The API server's time, as its answers tell it."""
        self._had_right_time = True

    async def __aenter__(self) -> Self:
        await self._configuration.load()
        self._session = aiohttp.ClientSession(
            connector=make_connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_BUFFER_BYTES,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    # --- reading --------------------------------------------------------------------------------

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        selector: str = "",
        *,
        is_metadata_enough: bool = False,
    ) -> AsyncGenerator[Page[Document], None]:
        """Objects of one namespace or of all, page by page; Gone if that takes minutes.

        ``selector``: only those whose labels fit, as ``kubectl get -l`` has it. If
        ``is_metadata_enough`` the API server leaves out all but their metadata.
        """
        accept = _METADATA if is_metadata_enough else _JSON
        pages = self.encoded_pages(resource, namespace, selector, accept=accept)
        async with aclosing(pages):
            async for page in pages:
                yield Page([_read(dict, item) for item in page.items], page.version)

    async def encoded_pages(
        self, resource: Resource, namespace: str = "", selector: str = "", *, accept: str = _JSON
    ) -> AsyncGenerator[Page[Raw], None]:
        """The same, each object as its text came: to be cut down before the next page comes."""
        call = _Call("list", resource, namespace)
        more = ""
        while True:
            query = {"limit": str(PAGE), "labelSelector": selector, "continue": more}
            given = {name: value for name, value in query.items() if value}
            text = await self._text("GET", call, resource.path(namespace), given, accept=accept)
            found = _read(_List, text)
            yield Page(list(found.items or ()), found.metadata.resource_version)
            more = found.metadata.more
            if not more:
                return

    async def version(self, resource: Resource) -> str:
        """The resource version of the present, read from the API server's storage."""
        call = _Call("list", resource)
        answer = await self._send("GET", call, resource.path(), {"limit": "1"})
        return str((answer.get("metadata") or {}).get("resourceVersion", ""))

    async def watch(
        self, resource: Resource, version: str, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[WatchEvent, None]:
        """What happens after ``version``, until the API server ends the watch.

        ``opened`` is called when it has agreed to tell that: it says nothing while nothing happens.
        It also ends when nothing has been told for long after something was: from there it can go
        on. Raises Gone if the API server does not remember so far back, Silent if nothing was told
        at all, not even the end.
        """
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(jittered(WATCH_SECONDS))),
        }
        call = _Call("watch", resource)
        request = _Request("GET", call, resource.path(), query, limits=_WATCH_LIMITS)
        response = await self._open(request)
        try:
            await _check(response, call)
            opened()
            async with aclosing(_lines(response.content, call)) as lines:
                async for line in lines:
                    event = _read(_Event, line)
                    if event.type == "ERROR":
                        status = _read(dict, event.object)
                        raise _failure(status.get("code", 0), status, None, call)
                    yield WatchEvent(event.type, event.object)
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(_words(error)) from None
        except ValueError as error:
            # Half a line, or one longer than any object can be.
            raise ServerFailure(f"unreadable watch: {error}") from None
        finally:
            response.close()

    async def get(self, resource: Resource, key: Key) -> Document:
        """One object."""
        call = _Call("get", resource, key.namespace)
        return await self._send("GET", call, resource.path_of(key))

    async def ask_time(self) -> None:
        """Ask for what API servers tell everybody: each answer, whatever it is, bears the time."""
        response = await self._open(_Request("GET", _Call("get", _VERSION), "/version"))
        response.release()

    async def is_built_in(self, resource: Resource) -> bool:
        """Whether the API server itself brings ``resource``; False: by definitions, or not at all.

        API servers speak protobuf about their own resources, and not about custom ones. Nothing
        else tells them apart for long: when a cluster changes from one to the other, both remain
        in discovery, APIServices and OpenAPI. Needs ``get`` on the object :data:`PROBE`, which
        need not exist.
        """
        key = Key("default", PROBE)
        call = _Call("get", resource, key.namespace)
        request = _Request("GET", call, resource.path_of(key), accept=_PROTOBUF)
        response = await self._open(request)
        response.release()
        if response.status == HTTPStatus.NOT_ACCEPTABLE:
            return False
        if response.ok or response.status == HTTPStatus.NOT_FOUND:
            return response.content_type == _PROTOBUF  # else there is no such resource
        # What is wrong is easier to read in JSON.
        await self.get(resource, key)
        raise ServerFailure(f"{call}: HTTP {response.status}")

    # --- writing --------------------------------------------------------------------------------

    async def apply(
        self,
        resource: Resource,
        key: Key,
        document: Mapping[str, Any],
        *,
        subresource: str = "",
        manager: str,
    ) -> Encoded:
        """Server-side apply as the field manager ``manager``, forced; returns the object."""
        call = _Call("patch", resource, key.namespace, subresource)
        query = {"fieldManager": manager, "force": "true"}
        path = resource.path_of(key, subresource)
        return await self._text("PATCH", call, path, query, document, _APPLY)

    async def create(
        self, resource: Resource, namespace: str, document: Document, *, dry_run: bool = False
    ) -> Document:
        """Create an object; Conflict if the name is taken. With ``dry_run`` it is only judged."""
        call = _Call("create", resource, namespace)
        query = {"dryRun": "All"} if dry_run else {}
        return await self._send("POST", call, resource.path(namespace), query, document)

    async def replace(self, resource: Resource, key: Key, document: Document) -> Document:
        """Update an object; Conflict if its ``resourceVersion`` is not the stored one."""
        call = _Call("update", resource, key.namespace)
        return await self._send("PUT", call, resource.path_of(key), None, document)

    async def delete(self, resource: Resource, key: Key, uid: str, version: str = "") -> None:
        """Delete the object if it is still that one, in that version; Conflict if it is not.

        ``version`` "": in any.
        """
        call = _Call("delete", resource, key.namespace)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid} | ({"resourceVersion": version} if version else {}),
        }
        await self._send("DELETE", call, resource.path_of(key), None, body)

    async def evict(self, pod: Key, uid: str) -> None:
        """Call ``pods/<name>/eviction`` for the pod with that UID.

        Raises Busy with its causes if a PodDisruptionBudget refuses, Missing if there is no such
        pod, Conflict if it has another UID.
        """
        call = _Call("create", PODS, pod.namespace, "eviction")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._send("POST", call, PODS.path_of(pod, "eviction"), None, body)

    # --- the wire -------------------------------------------------------------------------------

    async def _send(
        self,
        method: str,
        call: _Call,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Document:
        """Ask, and return the object of the answer."""
        return _read(dict, await self._text(method, call, path, query, body))

    async def _text(
        self,
        method: str,
        call: _Call,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
        *,
        accept: str = _JSON,
    ) -> bytes:
        request = _Request(method, call, path, query, body, content_type, accept=accept)
        response = await self._open(request)
        try:
            await _check(response, call)
            return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(_words(error)) from None
        finally:
            response.release()

    async def _open(self, request: _Request) -> aiohttp.ClientResponse:
        """Ask, and once more with what is read anew if one side does not accept the other."""
        access = await self._configuration.access()
        try:
            response = await self._ask(access, request)
        except Untrusted:
            if not await self._renew(access, request):
                raise
        else:
            if response.status != HTTPStatus.UNAUTHORIZED:
                return response
            response.release()
            # Tokens expire. One that is as bad as the last one is reported as such.
            await self._renew(access, request)
        return await self._ask(await self._configuration.access(), request)

    async def _renew(self, used: Access, request: _Request) -> bool:
        try:
            return await self._configuration.renew(used)
        except ConfigurationError as error:
            raise Unreachable(f"{request.call}: {error}") from None

    async def _ask(self, access: Access, request: _Request) -> aiohttp.ClientResponse:
        asked = monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                response = await self._session.request(
                    request.method,
                    access.server + request.path,
                    params=request.query,
                    headers=self._headers(access, request),
                    data=msgspec.json.encode(request.body) if request.body is not None else None,
                    timeout=request.limits,
                    ssl=access.context or True,
                    server_hostname=access.server_name,
                    proxy=access.proxy,
                )
        except (aiohttp.ClientError, OSError) as error:
            self._answered(request.call, NO_ANSWER, asked)
            is_trusted = not isinstance(error, aiohttp.ClientConnectorCertificateError)
            kind = Unreachable if is_trusted else Untrusted
            raise kind(f"{request.call}: {_words(error)}") from None
        self._answered(request.call, str(response.status), asked)
        self._compare_clocks(response.headers.get("Date", ""), asked)
        return response

    def _headers(self, access: Access, request: _Request) -> dict[str, str]:
        headers = {
            "Accept": request.accept,
            "Content-Type": request.content_type,
            "User-Agent": self._agent,
        }
        if access.authorization:
            headers["Authorization"] = access.authorization
        return headers

    def _answered(self, call: _Call, code: str, asked: float) -> None:
        if self._observe is not None:
            self._observe(call.verb, call.name, code, monotonic() - asked)

    @property
    def clock_ahead(self) -> timedelta:
        """How far the machine's clock is ahead of the API server's, to about two seconds."""
        return clock.now() - self.time.now()

    @property
    def has_right_time(self) -> bool:
        """Whether the machine's clock agrees with the API server's, as far as clocks can."""
        return abs(self.clock_ahead) < CLOCK_SKEW

    def _compare_clocks(self, date: str, asked: float) -> None:
        """Take note of the ``Date`` of an answer, and say what is wrong by it."""
        if jump := self.time.heard(date, asked, monotonic()):
            _log.warning(
                "the API server's time has jumped: nobody is interrupted, nothing is ended or "
                "removed for a while",
                seconds=round(jump.total_seconds()),
                settling_seconds=SETTLING.total_seconds(),
            )
        has_right_time = self.has_right_time
        if has_right_time == self._had_right_time:
            return
        self._had_right_time = has_right_time
        ahead = round(self.clock_ahead.total_seconds())
        if has_right_time:
            _log.info("the machine's clock agrees with the API server's again", seconds_ahead=ahead)
        else:
            _log.warning(
                "the machine's clock differs from the API server's, whose time is used instead",
                seconds_ahead=ahead,
            )


def _read(model: type[ItemT], text: bytes | Raw) -> ItemT:
    try:
        return read(model, text)
    except DecodeError as error:
        raise ServerFailure(f"the answer can't be read: {error}") from None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _lines(content: aiohttp.StreamReader, call: _Call) -> AsyncGenerator[bytes, None]:
    """The lines of a watch, until it ends or has been silent for long after the first one."""
    loop = asyncio.get_running_loop()
    patience = loop.time() + _WATCH_PATIENCE_SECONDS
    has_told = False
    while True:
        silence = loop.time() + _WATCH_SILENCE_SECONDS if has_told else patience
        try:
            async with asyncio.timeout_at(min(silence, patience)) as limit:
                line = await content.readline()
        except TimeoutError:
            if not limit.expired():
                raise  # the kernel's word for a connection that is dead
            if has_told:
                return
            told_nothing = f"{call}: silent for {_WATCH_PATIENCE_SECONDS:.0f} s"
            raise Silent(told_nothing) from None
        if not line:
            return
        has_told = True
        yield line


async def _check(response: aiohttp.ClientResponse, call: _Call) -> None:
    """Raise what an answer other than 2xx means."""
    if response.ok:
        return
    text = await response.read()
    try:
        status = msgspec.json.decode(text)
    except msgspec.DecodeError:
        status = {"message": text.decode(errors="replace").strip()}
    header = response.headers.get("Retry-After", "")
    retry_after = float(header) if header.isdecimal() else None
    raise _failure(response.status, status, retry_after, call)


def _failure(code: int, status: Any, retry_after: float | None, call: _Call) -> ClusterFailure:
    """What the ``metav1.Status`` of an answer means."""
    status = status if isinstance(status, dict) else {}
    message = str(status.get("message") or f"HTTP {code}")
    details = status.get("details") or {}
    causes = details.get("causes") or []
    retry_after = retry_after or details.get("retryAfterSeconds") or None
    is_terminating = any(cause.get("reason") == _TERMINATING for cause in causes)
    if code == HTTPStatus.UNAUTHORIZED:
        return Unauthenticated(message, str(call))
    if is_terminating or (code == HTTPStatus.FORBIDDEN and _is_of_authorizer(message)):
        return Denied(message, str(call), is_terminating)
    if code == HTTPStatus.TOO_MANY_REQUESTS:
        reasons = [str(cause.get("message", "")) for cause in causes]
        return Busy(message, retry_after, reasons, _source(message, causes))
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code == 0:
        return ServerFailure(message, retry_after)
    return _BY_CODE.get(code, Refused)(message)


def _source(message: str, causes: Sequence[Mapping[str, Any]]) -> BusySource:
    if _is_of_admission(message):
        return BusySource.ADMISSION
    if any(cause.get("reason") == _DISRUPTION_BUDGET for cause in causes):
        return BusySource.BUDGET
    return BusySource.SERVER


_BY_CODE: Final[Mapping[int, type[ClusterFailure]]] = {
    HTTPStatus.NOT_FOUND: Missing,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Gone,
}
