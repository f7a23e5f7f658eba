"""The wire shape of AdmissionReview: read here, written here, known nowhere else.

Source: ``k8s.io/api/admission/v1``, ``metav1.Status``, and the wording of apimachinery's
``errors.NewInvalid`` and ``NewForbidden``; Kubernetes 1.37.2.
"""

import base64
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.json import Encoder

from rules.decode import SHAPES, DecodeError, Shape, load, read, read_object
from rules.evaluate import Verdict, Violation, judges_deletion
from rules.field import Path
from rules.mutate import Revision
from rules.patch import Document, render
from rules.request import STATUS, Judged, Operation, Request, User
from rules.rule import Enforcement, Outcome
from rules.texts import ELLIPSIS, cut, is_control, printable

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

MAX_UID: Final = 1024
"""In bytes; an API server's own have 36 (``uuid.NewUUID``). Our own choice."""
MAX_CAUSES: Final = 100
"""How many causes and warnings an answer holds; a lawful object can't break so many rules."""
MAX_TEXT: Final = 1024
"""Characters of one text in an answer. Messages of lawful size have some 200. Our own choice."""
MAX_WARNING: Final = 256
"""In characters; API servers cut longer ones (``truncateItemRunes``)."""
MAX_WARNINGS: Final = 4096
"""All warnings of one answer together, in characters (``truncateAtTotalRunes``)."""
MAX_ANNOTATION: Final = 10 * 1024
"""In bytes (``auditAnnotations`` in admission/v1 types.go asks for few and short ones)."""

_OPERATIONS: Final = {operation.value: operation for operation in Operation}
_HTTP: Final = {Outcome.INVALID: 422, Outcome.FORBIDDEN: 403}
_json: Final = Encoder(enc_hook=str).encode
"""The one kind of text that msgspec does not write by itself is a :class:`rules.field.Path`."""
_UTF8_BYTES: Final = 4
"""What a character takes at most."""


class _Kind(Struct, frozen=True, gc=False):  # metav1.GroupVersionKind
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(Struct, frozen=True, gc=False):  # metav1.GroupVersionResource
    group: str = ""
    version: str = ""
    resource: str = ""


class _UserInfo(Struct, frozen=True, gc=False):  # authentication/v1 UserInfo
    username: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


_NULL: Final = b"null"
_NOTHING: Final = Raw(_NULL)


class _Asked(Struct, frozen=True, gc=False, rename="camel"):
    """``admission/v1 AdmissionRequest``, as far as anybody looks at it."""

    uid: str = ""
    kind: _Kind = _Kind()
    resource: _Resource = _Resource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: Raw = _NOTHING
    object: Raw = _NOTHING
    old_object: Raw = _NOTHING
    dry_run: bool = False


class _Envelope(Struct, frozen=True, gc=False, rename="camel"):
    """``admission/v1 AdmissionReview``."""

    api_version: str = ""
    kind: str = ""
    request: _Asked | None = None


class Review(Struct, frozen=True, gc=False):
    """One call of an API server; ``request`` is None where no rule has anything to say."""

    uid: str
    operation: Operation
    group: str
    kind: str
    resource: str
    subresource: str
    name: str
    namespace: str
    user: User
    dry_run: bool
    request: Request | None
    raw: Raw
    """The object of the request as it came: JSON."""

    def document(self) -> Document:
        """The object of the request with all of its fields. Raises DecodeError."""
        document: Document = load(bytes(self.raw))
        return document


def decode(data: bytes, now: datetime) -> Review:
    """What ``data``, an AdmissionReview as JSON, asks at ``now``.

    Raises DecodeError where it is not what an API server sends: over HTTP that is a 400.
    """
    asked = _open(data)
    operation = _OPERATIONS.get(asked.operation)
    if operation is None:
        listed = ", ".join(_OPERATIONS)
        raise DecodeError(f"must be one of {listed}", _REQUEST.child("operation"))
    _check_uid(asked.uid)
    kind, resource, user = asked.kind, asked.resource, _user(asked.user_info)
    shape = _shape(kind, resource, asked.sub_resource)
    return Review(
        uid=asked.uid,
        operation=operation,
        group=kind.group,
        kind=kind.kind,
        resource=resource.resource,
        subresource=asked.sub_resource,
        name=asked.name,
        namespace=asked.namespace,
        user=user,
        dry_run=asked.dry_run,
        request=_request(asked, operation, shape, user, now) if shape is not None else None,
        raw=asked.object,
    )


_REQUEST: Final = Path("request")
_UID: Final = _REQUEST.child("uid")


def _open(data: bytes) -> _Asked:
    try:
        data.isascii() or data.decode()  # what no rule reads is skipped, whatever its bytes
    except UnicodeDecodeError as error:
        raise DecodeError(f"must be UTF-8: {error}") from None
    try:
        envelope = read(_Envelope, data)
    except DecodeError as error:
        is_object = error.path or data.lstrip()[:1] == b"{"
        raise error if is_object else DecodeError(f"must be one {KIND} object") from None
    if envelope.api_version != API_VERSION:
        raise DecodeError(f"must be '{API_VERSION}'", Path("apiVersion"))
    if envelope.kind != KIND:
        raise DecodeError(f"must be '{KIND}'", Path("kind"))
    if envelope.request is None:
        raise DecodeError("must be an object", _REQUEST)
    return envelope.request


def _shape(kind: _Kind, resource: _Resource, subresource: str) -> Shape | None:
    """What to judge in such a request; None for a resource or a subresource that isn't ours."""
    shape = SHAPES.get((kind.group, kind.version, kind.kind))
    if shape is None or subresource not in ("", STATUS):
        return None
    named = resource.group == kind.group and resource.resource == plural(kind.kind)
    return shape if named or not resource.resource else None


def plural(kind: str) -> str:
    """The resource of ``kind``, for the kinds that rules exist for."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _check_uid(uid: str) -> None:
    if not uid:
        raise DecodeError("must not be empty", _UID)
    if len(uid.encode()) > MAX_UID:
        raise DecodeError(f"may not be more than {MAX_UID} bytes", _UID)
    if not uid.isprintable() and any(map(is_control, uid)):
        raise DecodeError("must not contain control characters", _UID)


def _user(info: Raw) -> User:
    """The caller; nobody, whom no identity rule admits, where any part of ``info`` is strange."""
    try:
        user = read(_UserInfo, info)
    except DecodeError:
        return User()
    return User(user.username, user.groups, user.uid, tuple(user.extra.items()))


def _request(
    asked: _Asked, operation: Operation, shape: Shape, user: User, now: datetime
) -> Request:
    """What to judge; without the objects that this operation does not judge."""
    new, old = None, None
    if operation in (Operation.CREATE, Operation.UPDATE):
        new = _judged(shape, asked.object, "object", operation)
    if operation == Operation.UPDATE:
        old = _judged(shape, asked.old_object, "oldObject", operation)
    elif operation == Operation.DELETE:
        old = _going(shape, asked.old_object)
    return Request(
        operation=operation,
        now=now,
        object=new,
        old_object=old,
        subresource=asked.sub_resource,
        name=asked.name,
        namespace=asked.namespace,
        root=shape.root,
        user=user,
        dry_run=asked.dry_run,
    )


def _judged(shape: Shape, raw: Raw, key: str, operation: Operation) -> Judged:
    try:
        return read_object(shape, raw)
    except DecodeError as error:
        path = _REQUEST.child(key)
        if bytes(raw) == _NULL:
            raise DecodeError(f"must be set on {operation}", path) from None
        inner = path.child(error.path) if error.path else path
        raise DecodeError(error.detail, inner) from None


def _going(shape: Shape, raw: Raw) -> Judged | None:
    """The object that is to be deleted, if rules look at that and it can be read.

    Who wants to be rid of a broken one must not wait.
    """
    if bytes(raw) == _NULL:
        raise DecodeError(f"must be set on {Operation.DELETE}", _REQUEST.child("oldObject"))
    if not judges_deletion(shape.model):
        return None
    try:
        return read_object(shape, raw)
    except DecodeError:
        return None


def decision(verdict: Verdict) -> str:
    """``deny``, ``warn`` or ``allow``: what the client notices."""
    if not verdict.violations:
        return "allow"
    if verdict.denied:
        return "deny"
    return "warn" if verdict.enforced(Enforcement.WARN) else "allow"


def encode(review: Review, verdict: Verdict) -> bytes:
    """The answer to ``review`` as JSON."""
    return _json(respond(review, verdict))


def respond(review: Review, verdict: Verdict) -> dict[str, Any]:
    """The AdmissionReview that answers ``review``, ready to be written as JSON.

    Deterministic: the same review and verdict give the same answer, audit annotations included.
    """
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if verdict.violations:
        if denied := verdict.denied:
            response["allowed"] = False
            response["status"] = _status(review, denied)
        if warned := verdict.enforced(Enforcement.WARN):
            response["warnings"] = warnings(str(v.error) for v in warned)
    response["auditAnnotations"] = _annotations(verdict)
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def encode_revision(review: Review, revision: Revision) -> bytes:
    """The answer to ``review`` that asks for ``revision``, as JSON.

    As deterministic as that of :func:`respond`. Both patch and patchType, or neither: API servers
    refuse an answer that has one of them.
    """
    response: dict[str, Any] = {"uid": review.uid, "allowed": True}
    if revision.steps:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(render(revision.steps)).decode()
    if annotations := _revision_annotations(revision):
        response["auditAnnotations"] = annotations
    return _json({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _revision_annotations(revision: Revision) -> dict[str, str]:
    annotations: dict[str, str] = {}
    if revision.made:
        annotations["mutations"] = ",".join(made.mutation for made in revision.made)
        changes = "; ".join(made.note for made in revision.made)
        annotations["changes"] = cut(printable(changes), MAX_ANNOTATION // _UTF8_BYTES)
    if revision.unanswered:
        annotations["unanswered"] = ",".join(revision.unanswered)
    return annotations


def outcome(denied: Iterable[Violation]) -> Outcome:
    """Invalid where anything is: that holds whoever asks, and API servers look at it first."""
    invalid = any(violation.outcome == Outcome.INVALID for violation in denied)
    return Outcome.INVALID if invalid else Outcome.FORBIDDEN


def _status(review: Review, denied: tuple[Violation, ...]) -> dict[str, Any]:
    reason = outcome(denied)
    shown = denied[:MAX_CAUSES]
    causes = [_cause(violation) for violation in shown]
    messages = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    if len(denied) > len(shown):
        messages.append(f"{ELLIPSIS} and {len(denied) - len(shown)} more")
    listed = f"[{', '.join(messages)}]" if len(messages) > 1 else messages[0]
    name = cut(review.name or _own_name(review.request), MAX_TEXT)
    about = review.kind if reason == Outcome.INVALID else review.resource or plural(review.kind)
    qualified = f"{about}.{review.group}" if review.group else about
    return {
        "status": "Failure",
        "message": f'{qualified} "{name}" is {reason.lower()}: {listed}',
        "reason": reason,
        "details": {
            "name": name,
            "group": review.group,
            # The resource in a refusal that names it: so do NewInvalid and NewForbidden.
            "kind": about,
            "causes": causes,
        },
        "code": _HTTP[reason],
    }


def _cause(violation: Violation) -> dict[str, str]:
    error = violation.error
    return {
        "reason": error.type,
        "message": cut(error.message, MAX_TEXT),
        "field": cut(error.field, MAX_TEXT),
    }


def _own_name(request: Request | None) -> str:
    # A mutating call for an object with generateName carries no name, and deletions of a whole
    # collection none either.
    judged = (request.object or request.old_object) if request is not None else None
    return judged.metadata.name if judged is not None else ""


def warnings(messages: Iterable[str]) -> list[str]:
    """``messages`` within the limits of API servers; whatever is cut leaves a visible mark."""
    texts = list(dict.fromkeys(cut(printable(message), MAX_WARNING) for message in messages))
    kept, room = 0, MAX_WARNINGS
    while kept < len(texts) and len(texts[kept]) <= room:
        room -= len(texts[kept])
        kept += 1
    while kept < len(texts):
        rest = f"{ELLIPSIS} and {len(texts) - kept} more warnings"
        if len(rest) <= room:
            return [*texts[:kept], rest]
        kept -= 1
        room += len(texts[kept])
    return texts


def _annotations(verdict: Verdict) -> dict[str, str]:
    if not verdict.violations:
        return {"verdict": "allow"} | _unanswered(verdict)
    rules = dict.fromkeys(violation.rule for violation in verdict.violations)
    return {
        "verdict": decision(verdict),
        "rules": ",".join(rules),
        "violations": _listed(verdict.violations),
    } | _unanswered(verdict)


def _unanswered(verdict: Verdict) -> dict[str, str]:
    return {"unanswered": ",".join(verdict.unanswered)} if verdict.unanswered else {}


def _listed(violations: tuple[Violation, ...]) -> str:
    """JSON list, one object a violation; the last says how many did not fit.

    Without the refused values: they may be anybody's data, and audit logs are widely read.
    """
    entries, size = [], len("[]")
    for position, entry in enumerate(map(_entry, violations)):
        rest = _json({"omitted": len(violations) - position})
        if size + len(entry) + len(rest) + len(",,") > MAX_ANNOTATION:
            entries.append(rest)
            break
        entries.append(entry)
        size += len(entry) + len(",")
    return f"[{b','.join(entries).decode()}]"


def _entry(violation: Violation) -> bytes:
    error = violation.error
    return _json(
        {
            "rule": violation.rule,
            "enforcement": violation.enforcement,
            "field": cut(error.field, MAX_WARNING),
            "reason": error.type,
            "message": cut(error.detail, MAX_WARNING),
        }
    )
