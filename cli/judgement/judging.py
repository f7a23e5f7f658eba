"""From an object, and the stored one that it changes, to findings: the one way to the rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cli.judgement import checks
from cli.judgement.findings import DocumentReport, Finding, Severity
from cli.judgement.reporting import broken_at, finding_at, json_problems, report_on
from cli.manifests.objects import Manifest
from cli.manifests.stored import NoSingleMatch, StoredObjects
from cli.rbac.authorizer import Authorizer
from cli.suggestions import nearest
from rules.api import API_VERSION, GROUP, RESPONDERS_ANNOTATION, EvictionResponder, Pod
from rules.decode import SHAPES, DecodeError, Shape, decode_object, load, unknown_fields
from rules.evaluate import Inquiry, Policy, Verdict
from rules.facts import NO_FACTS
from rules.field import Path
from rules.pod.declaration import annotation_path
from rules.policies import POLICY_API_VERSION, POLICY_GROUP
from rules.request import Operation, Request, User
from rules.rule import Enforcement

_SEVERITIES: Final = {
    Enforcement.DENY: Severity.ERROR,
    Enforcement.WARN: Severity.WARNING,
    Enforcement.AUDIT: Severity.NOTE,
}
_API_VERSIONS: Final = {GROUP: API_VERSION, POLICY_GROUP: POLICY_API_VERSION}
"""The groups of which every kind has rules, and the only version that each of them has."""
_NOTHING_STORED: Final = StoredObjects(())
_NATIVE: Final = "spec.evictionResponders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a run judges by, the same for every object."""

    now: datetime
    policy: Policy = Policy()
    operation: Operation | None = None
    """None: UPDATE for what ``stored`` holds, CREATE for the rest."""
    subresource: str = ""
    user: User | None = None
    """None: nobody says who writes."""
    authorizer: Authorizer | None = None
    """Knows what ``user`` may do; None: nobody does."""
    namespace: str = ""
    """Where objects belong that do not say it."""
    mode: str = "auto"
    strict: bool = False
    stored: StoredObjects = _NOTHING_STORED


def report_unsound(manifest: Manifest) -> DocumentReport:
    """The report about an object that is not judged, only read."""
    return report_on(manifest, list(_unsound(manifest)))


def judge(manifest: Manifest, terms: Terms, *, alone: bool) -> DocumentReport:
    """The report about one object; ``alone`` unless the run has others."""
    shape = manifest.shape
    unsound = list(_unsound(manifest))
    if unsound or shape is None or (terms.subresource and shape.model is Pod):
        return report_on(manifest, unsound, skipped=not unsound)
    try:
        stored = terms.stored.find(manifest, alone=alone)
    except NoSingleMatch as error:
        return report_on(manifest, [broken_at(manifest, checks.STORED_OBJECT, str(error))])
    if stored is not None and not stored.sound:
        return report_on(manifest, [])
    old = stored.manifest if stored is not None else None
    if old is None and (terms.operation == Operation.UPDATE or terms.subresource):
        message = f"--old must hold the object that this one changes: {manifest.name}"
        return report_on(manifest, [broken_at(manifest, checks.STORED_OBJECT, message)])
    findings = [*_unknown_fields(manifest, shape, strict=terms.strict)]
    findings += _ineffective(manifest, shape, terms.mode)
    verdict = _verdict(manifest, old, shape, terms)
    findings += _violations(manifest, verdict)
    return report_on(manifest, findings, unanswered=verdict.unanswered)


def _unsound(manifest: Manifest) -> Iterator[Finding]:
    """Why the object cannot be judged; nothing for sound objects and for kinds without rules."""
    shape = manifest.shape
    if shape is not None or manifest.value is None:
        yield from json_problems(manifest)
        if manifest.problems:
            return
    if shape is None:
        yield from _misnamed(manifest)
        return
    try:
        decode_object(shape, manifest.value)
    except DecodeError as error:
        quoted = "; put numbers, yes, no and the like in quotes" if "string" in error.detail else ""
        yield broken_at(manifest, checks.FIELD_TYPES, error.detail + quoted, error.path)


def _misnamed(manifest: Manifest) -> Iterator[Finding]:
    """A finding about an object that was meant to have rules, by the look of it."""
    (group, _), kind = manifest.group_version, manifest.name.kind
    if not manifest.name.api_version:
        versions = [f"{g}/{v}".removeprefix("/") for g, v, k in SHAPES if k == kind]
        if versions:
            message = f"apiVersion must be set, for example to '{versions[0]}'"
            yield broken_at(manifest, checks.KNOWN_KIND, message)
    elif manifest.name.api_version != (only := _API_VERSIONS.get(group, "")) and only:
        message = f"must be '{only}', the only version there is"
        yield broken_at(manifest, checks.KNOWN_KIND, message, Path("apiVersion"))
    elif only:
        kinds = [known for of, _, known in SHAPES if of == group]
        message = f"must be one of {', '.join(kinds)}; not '{kind}'{nearest(kind, kinds)}"
        yield broken_at(manifest, checks.KNOWN_KIND, message, Path("kind"))


def _unknown_fields(manifest: Manifest, shape: Shape, *, strict: bool) -> Iterator[Finding]:
    severity = Severity.ERROR if strict else Severity.WARNING
    for path in _unknown_paths(manifest.value, shape):
        message = "unknown field; API servers drop it"
        yield finding_at(manifest, checks.KNOWN_FIELDS, message, path, severity=severity)


def _unknown_paths(value: Any, shape: Shape) -> Iterator[Path]:
    if shape.model is not Pod:
        yield from unknown_fields(shape.model, value)
        return
    # Of a pod only the responders are known here.
    for path, responders in _declared(value, shape.root):
        for position, responder in enumerate(responders):
            yield from unknown_fields(EvictionResponder, responder, path.at(position))


def _declared(value: Any, root: Path) -> Iterator[tuple[Path, list[Any]]]:
    """The lists of responders in a pod, or pod template, that can be read."""
    pod = value
    for name in root.split(".") if root else ():
        pod = pod.get(name, {})
    native = pod.get("spec", {}).get("evictionResponders")
    if native:
        yield root.child(_NATIVE), native
    text = pod.get("metadata", {}).get("annotations", {}).get(RESPONDERS_ANNOTATION)
    if text is not None:
        try:
            annotated = load(text.encode())
        except DecodeError:
            return  # a rule tells why
        if isinstance(annotated, list):
            yield annotation_path(root), annotated


def _ineffective(manifest: Manifest, shape: Shape, mode: str) -> Iterator[Finding]:
    """A warning where all responders are declared in a place that the cluster does not read."""
    if shape.model is not Pod or mode == "auto":
        return
    native, annotation = shape.root.child(_NATIVE), annotation_path(shape.root)
    declared = [path for path, _ in _declared(manifest.value, shape.root)]
    if mode == "crd" and declared == [native]:
        message = f"has no effect: API servers without this field drop it; add {annotation}"
    elif mode == "native" and declared == [annotation]:
        message = f"has no effect: API servers read {native} only; add it"
    else:
        return
    yield finding_at(
        manifest, checks.EFFECTIVE_RESPONDERS, message, declared[0], severity=Severity.WARNING
    )


def _verdict(manifest: Manifest, old: Manifest | None, shape: Shape, terms: Terms) -> Verdict:
    value, stored = manifest.value, old.value if old is not None else None
    stored_namespace = old.name.namespace if old is not None else ""
    namespace = manifest.name.namespace or stored_namespace or terms.namespace
    request = Request(
        operation=Operation.CREATE if old is None else Operation.UPDATE,
        now=terms.now,
        object=decode_object(shape, _in_namespace(value, namespace)),
        old_object=decode_object(shape, _in_namespace(stored, namespace))
        if old is not None
        else None,
        subresource=terms.subresource,
        name=manifest.name.name,
        namespace=namespace,
        root=shape.root,
        user=terms.user,
    )
    inquiry = Inquiry(request, terms.policy)
    if terms.user is None or terms.authorizer is None:
        return inquiry.verdict(NO_FACTS)
    return inquiry.verdict(terms.authorizer.facts(terms.user, inquiry.questions()))


def _violations(manifest: Manifest, verdict: Verdict) -> Iterator[Finding]:
    for violation in verdict.violations:
        error = violation.error
        yield finding_at(
            manifest,
            violation.rule,
            error.message,
            error.field,
            severity=_SEVERITIES[violation.enforcement],
            type_=error.type,
        )


def _in_namespace(value: Any, namespace: str) -> Any:
    """``value`` with the namespace that the request's URL would give it."""
    metadata = value.get("metadata", {})
    if not namespace or metadata.get("namespace"):
        return value
    return {**value, "metadata": {**metadata, "namespace": namespace}}
