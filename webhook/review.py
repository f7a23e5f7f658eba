"""The wire shape of AdmissionReview: read here, written here, known nowhere else.

Source: ``k8s.io/api/admission/v1``, ``metav1.Status``, and the wording of apimachinery's
``errors.NewInvalid`` and ``NewForbidden``; Kubernetes 1.37.2.
"""

import base64
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from rules.decode import SHAPES, DecodeError, Shape, decode_object
from rules.evaluate import Verdict, Violation, judges_deletion
from rules.field import Path
from rules.mutate import Revision
from rules.patch import Document, render
from rules.request import STATUS, Operation, Request, User
from rules.rule import Enforcement, Outcome

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
_JUDGED: Final = (Operation.CREATE, Operation.UPDATE)
_HTTP: Final = {Outcome.INVALID: 422, Outcome.FORBIDDEN: 403}
_CUT: Final = "…"
_UTF8_BYTES: Final = 4
"""What a character takes at most."""


class Review(NamedTuple):
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
    document: Document
    """The object of the request as it came; empty where ``request`` is None or has no object."""


def decode(raw: Any, now: datetime) -> Review:
    """What ``raw``, an AdmissionReview as :func:`rules.decode.load` returns it, asks at ``now``.

    Raises DecodeError where ``raw`` is not what an API server sends: over HTTP that is a 400.
    """
    request = _opened(raw)
    operation = _OPERATIONS.get(_text(request, "operation"))
    if operation is None:
        listed = ", ".join(_OPERATIONS)
        raise DecodeError(f"must be one of {listed}", _REQUEST.child("operation"))
    kind = _names(request, "kind", "kind")
    resource = _names(request, "resource", "resource")
    subresource = _text(request, "subResource")
    name, namespace = _text(request, "name"), _text(request, "namespace")
    user, dry_run = _user(request.get("userInfo")), request.get("dryRun", False)
    if type(dry_run) is not bool:
        raise DecodeError("must be true or false", _REQUEST.child("dryRun"))
    uid = _uid(request)
    judged, document = None, _NO_DOCUMENT
    shape = _shape(kind, resource, subresource)
    if shape is not None:
        new, old = _objects(request, operation, shape)
        document = new or _NO_DOCUMENT
        judged = Request(
            operation=operation,
            now=now,
            object=_shaped(shape, new, "object"),
            old_object=_shaped(shape, old, "oldObject"),
            subresource=subresource,
            name=name,
            namespace=namespace,
            root=shape.root,
            user=user,
            dry_run=dry_run,
        )
    return Review(
        uid=uid,
        operation=operation,
        group=kind.group,
        kind=kind.name,
        resource=resource.name,
        subresource=subresource,
        name=name,
        namespace=namespace,
        user=user,
        dry_run=dry_run,
        request=judged,
        document=document,
    )


_NO_DOCUMENT: Final[Document] = {}
_REQUEST: Final = Path("request")
_UID: Final = _REQUEST.child("uid")


class _Names(NamedTuple):
    """``metav1.GroupVersionKind`` or ``GroupVersionResource``."""

    group: str
    version: str
    name: str


def _opened(raw: Any) -> dict[str, Any]:
    root = _object(raw, Path())
    if root.get("apiVersion") != API_VERSION:
        raise DecodeError(f"must be '{API_VERSION}'", Path("apiVersion"))
    if root.get("kind") != KIND:
        raise DecodeError(f"must be '{KIND}'", Path("kind"))
    return _object(root.get("request"), _REQUEST)


def _shape(kind: _Names, resource: _Names, subresource: str) -> Shape | None:
    """What to judge in such a request; None for a resource or a subresource that isn't ours."""
    shape = SHAPES.get(kind)
    if shape is None or subresource not in ("", STATUS):
        return None
    named = resource.group == kind.group and resource.name == plural(kind.name)
    return shape if named or not resource.name else None


def plural(kind: str) -> str:
    """The resource of ``kind``, for the kinds that rules exist for."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _object(value: Any, path: Path) -> dict[str, Any]:
    if type(value) is not dict:
        raise DecodeError("must be an object" if path else f"must be one {KIND} object", path)
    return value


def _text(parent: Mapping[str, Any], key: str, *path: str) -> str:
    value = parent.get(key, "")
    if type(value) is not str:
        raise DecodeError("must be a string", Path(".".join((_REQUEST, *path, key))))
    return value


def _names(request: Mapping[str, Any], key: str, last: str) -> _Names:
    value = request.get(key, {})
    if type(value) is not dict:
        raise DecodeError("must be an object", _REQUEST.child(key))
    return _Names(_text(value, "group", key), _text(value, "version", key), _text(value, last, key))


def _uid(request: Mapping[str, Any]) -> str:
    uid, path = _text(request, "uid"), _UID
    if not uid:
        raise DecodeError("must not be empty", path)
    if len(uid.encode()) > MAX_UID:
        raise DecodeError(f"may not be more than {MAX_UID} bytes", path)
    if not uid.isprintable() and any(map(_is_control, uid)):
        raise DecodeError("must not contain control characters", path)
    return uid


def _user(info: Any) -> User:
    """The caller; nobody, whom no identity rule admits, where any part of ``info`` is strange."""
    if type(info) is not dict:
        return User()
    name, uid, extra = info.get("username", ""), info.get("uid", ""), info.get("extra", {})
    groups = _texts(info.get("groups", []))
    if type(name) is not str or type(uid) is not str or groups is None or type(extra) is not dict:
        return User()
    extras: list[tuple[str, tuple[str, ...]]] = []
    for key, values in extra.items():
        texts = _texts(values)
        if texts is None:
            return User()
        extras.append((key, texts))
    return User(name, groups, uid, tuple(extras))


def _texts(value: Any) -> tuple[str, ...] | None:
    """``value`` as texts; None where it is no list of these."""
    if type(value) is not list or not all(type(item) is str for item in value):
        return None
    return tuple(value)


def _objects(request: Mapping[str, Any], operation: Operation, shape: Shape) -> tuple[Any, Any]:
    """The objects to judge; None for those that this operation does not judge."""
    new, old = request.get("object"), request.get("oldObject")
    if new is None and operation in _JUDGED:
        raise DecodeError(f"must be set on {operation}", _REQUEST.child("object"))
    if old is None and operation in (Operation.UPDATE, Operation.DELETE):
        raise DecodeError(f"must be set on {operation}", _REQUEST.child("oldObject"))
    if operation == Operation.DELETE and judges_deletion(shape.model):
        return None, old if _is_readable(shape, old) else None
    if operation not in _JUDGED:
        return None, None
    return new, old if operation == Operation.UPDATE else None


def _is_readable(shape: Shape, document: Any) -> bool:
    """Whether a stored object can be judged; who wants to be rid of a broken one must not wait."""
    try:
        decode_object(shape, _object(document, _REQUEST))
    except DecodeError:
        return False
    return True


def _shaped(shape: Shape, document: Any, key: str) -> Any:
    if document is None:
        return None
    try:
        return decode_object(shape, _object(document, _REQUEST.child(key)))
    except DecodeError as error:
        path = _REQUEST.child(key)
        inner = error.path.removeprefix(path)
        raise DecodeError(error.detail, path.child(inner) if inner else path) from None


def decision(verdict: Verdict) -> str:
    """``deny``, ``warn`` or ``allow``: what the client notices."""
    if not verdict.violations:
        return "allow"
    if verdict.denied:
        return "deny"
    return "warn" if verdict.enforced(Enforcement.WARN) else "allow"


def encode(review: Review, verdict: Verdict) -> bytes:
    """The answer to ``review`` as JSON."""
    return orjson.dumps(respond(review, verdict))


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
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


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
        messages.append(f"{_CUT} and {len(denied) - len(shown)} more")
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
        rest = f"{_CUT} and {len(texts) - kept} more warnings"
        if len(rest) <= room:
            return [*texts[:kept], rest]
        kept -= 1
        room += len(texts[kept])
    return texts


def cut(text: str, limit: int) -> str:
    """``text`` with at most ``limit`` characters; the last of a longer one becomes an ellipsis."""
    return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT


def printable(text: str) -> str:
    r"""``text`` with its control characters written out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(f"\\x{ord(char):02x}" if _is_control(char) else char for char in text)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"


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
        rest = orjson.dumps({"omitted": len(violations) - position})
        if size + len(entry) + len(rest) + len(",,") > MAX_ANNOTATION:
            entries.append(rest)
            break
        entries.append(entry)
        size += len(entry) + len(",")
    return f"[{b','.join(entries).decode()}]"


def _entry(violation: Violation) -> bytes:
    error = violation.error
    return orjson.dumps(
        {
            "rule": violation.rule,
            "enforcement": violation.enforcement,
            "field": cut(error.field, MAX_WARNING),
            "reason": error.type,
            "message": cut(error.detail, MAX_WARNING),
        }
    )
