"""Metadata must be what Kubernetes accepts: names, labels, annotations, owners, finalizers.

Why: an API server judges metadata before any webhook sees it; these checks give the same answer
to a manifest that has not met an API server yet.
Source: apimachinery pkg/api/validation/objectmeta.go and apiserver pkg/registry/rest.
Admitted: {name: drain-web-0, labels: {acme.io/team: web}}
Refused: {name: Drain_Web_0, labels: {acme.io/team: "web team"}}
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from rules import formats
from rules.api import Eviction, EvictionRequest, ObjectMeta, OwnerReference
from rules.field import FieldError, Path, forbidden, invalid, required, too_long
from rules.policies import AnyPolicy
from rules.rule import Context, Rule

_Object: TypeAlias = Eviction | EvictionRequest | AnyPolicy
_FIELD = Path("metadata")
_MAX_ANNOTATIONS: Final = 256 * 1024
"""All keys and values together, in bytes (``TotalAnnotationSizeLimitB``)."""
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
_STANDARD_FINALIZERS: Final = ("kubernetes", _ORPHAN, _FOREGROUND)
"""The only finalizers without a domain (pkg/apis/core/helper)."""
_BANNED_OWNERS: Final = (("v1", "Event"), ("/v1", "Event"))
"""Events may not own anything (``BannedOwners``); both texts mean the core group."""
_IMMUTABLE: Final = ("name", "namespace")


def _create(new: _Object, *, old: None, context: Context) -> Iterator[FieldError]:
    meta = new.metadata
    if not meta.name and not meta.generate_name:
        yield required(_FIELD.child("name"), "name or generateName is required")
    if not formats.is_long_name(meta.name) and (meta.name or not meta.generate_name):
        yield invalid(_FIELD.child("name"), meta.name, formats.LONG_NAME_HELP)
    if meta.generate_name:
        yield from _judge_segment(_FIELD.child("generateName"), meta.generate_name)
    yield from _judge_content(meta)


def _update(new: _Object, *, old: _Object, context: Context) -> Iterator[FieldError]:
    meta, stored = new.metadata, old.metadata
    yield from _judge_kept_fields(meta, stored)
    if stored.deletion_timestamp is None:
        yield from _judge_content(meta)
        return
    # Nothing may keep an object from going: while it is being deleted only new finalizers count.
    added = sorted(set(meta.finalizers) - set(stored.finalizers))
    if added:
        detail = f"may not be added while the object is being deleted: {', '.join(added)}"
        yield forbidden(_FIELD.child("finalizers"), detail)


def _update_status(new: _Object, *, old: _Object, context: Context) -> Iterator[FieldError]:
    # A status write takes everything else in metadata from the stored object.
    yield from _judge_kept_fields(new.metadata, old.metadata)


def _judge_kept_fields(meta: ObjectMeta, stored: ObjectMeta) -> Iterator[FieldError]:
    if not meta.name:
        yield required(_FIELD.child("name"), "name or generateName is required")
    else:
        yield from _judge_segment(_FIELD.child("name"), meta.name)
    if meta.generate_name:
        yield from _judge_segment(_FIELD.child("generateName"), meta.generate_name)
    for attribute in _IMMUTABLE:
        value = getattr(meta, attribute)
        if value != getattr(stored, attribute):
            yield invalid(_FIELD.child(attribute), value, "field is immutable")
    if meta.uid not in ("", stored.uid):
        yield invalid(_FIELD.child("uid"), meta.uid, "field is immutable")


def _judge_segment(path: Path, text: str) -> Iterator[FieldError]:
    if not formats.is_path_segment(text):
        yield invalid(path, text, formats.PATH_SEGMENT_HELP)


def _judge_content(meta: ObjectMeta) -> Iterator[FieldError]:
    if meta.namespace and not formats.is_short_name(meta.namespace):
        yield invalid(_FIELD.child("namespace"), meta.namespace, formats.SHORT_NAME_HELP)
    labels = _FIELD.child("labels")
    for key, value in meta.labels.items():
        if not formats.is_qualified_name(key):
            yield invalid(labels, key, formats.QUALIFIED_NAME_HELP)
        if not formats.is_label_value(value):
            yield invalid(labels, value, formats.LABEL_VALUE_HELP)
    yield from _judge_annotations(_FIELD.child("annotations"), meta.annotations)
    yield from _judge_owners(_FIELD.child("ownerReferences"), meta.owner_references)
    yield from _judge_finalizers(_FIELD.child("finalizers"), meta.finalizers)


def _judge_annotations(path: Path, annotations: dict[str, str]) -> Iterator[FieldError]:
    size = 0
    for key, value in annotations.items():
        size += formats.byte_length(key) + formats.byte_length(value)
        if not formats.is_qualified_name(key.lower()):
            yield invalid(path, key, formats.QUALIFIED_NAME_HELP)
    if size > _MAX_ANNOTATIONS:
        yield too_long(path, _MAX_ANNOTATIONS, "bytes")


def _judge_owners(path: Path, owners: tuple[OwnerReference, ...]) -> Iterator[FieldError]:
    for position, owner in enumerate(owners):
        place = path.at(position)
        if not owner.api_version:
            yield required(place.child("apiVersion"), "must not be empty")
        elif owner.api_version.count("/") > 1 or not owner.api_version.rpartition("/")[2]:
            field = place.child("apiVersion")
            yield invalid(field, owner.api_version, "must be <group>/<version> or <version>")
        for name in ("kind", "name", "uid"):
            if not getattr(owner, name):
                yield required(place.child(name), "must not be empty")
        if (owner.api_version, owner.kind) in _BANNED_OWNERS:
            yield invalid(place, owner, "may not be owned by an Event")
    if sum(owner.controller is True for owner in owners) > 1:
        yield invalid(path, list(owners), "may have 'controller' true in one reference only")


def _judge_finalizers(path: Path, finalizers: tuple[str, ...]) -> Iterator[FieldError]:
    for position, finalizer in enumerate(finalizers):
        if not formats.is_qualified_name(finalizer):
            yield invalid(path, finalizer, formats.QUALIFIED_NAME_HELP)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "must be '<domain>/<name>' (for example 'acme.io/cleanup')"
            yield invalid(path.at(position), finalizer, detail)
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        detail = f"may not contain both '{_ORPHAN}' and '{_FOREGROUND}'"
        yield invalid(path, list(finalizers), detail)


RULE: Rule[_Object] = Rule(
    name="object-metadata",
    doc=__doc__,
    reads=(
        "metadata.name",
        "metadata.generateName",
        "metadata.namespace",
        "metadata.uid",
        "metadata.deletionTimestamp",
        "metadata.labels",
        "metadata.annotations",
        "metadata.ownerReferences",
        "metadata.finalizers",
    ),
    standing=True,
    create=_create,
    update=_update,
    update_status=_update_status,
)
