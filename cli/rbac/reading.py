"""From files to roles and bindings, and to what is wrong with them."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from cli.judgement import checks
from cli.judgement.findings import DocumentReport, FileReport, Finding
from cli.judgement.reporting import broken_at, json_problems, report_on, report_unreadable
from cli.manifests.documents import Unreadable
from cli.manifests.objects import Manifest, read_parts
from cli.manifests.sources import Source
from cli.rbac.authorizer import Authorizer
from cli.rbac.shapes import (
    GROUP,
    KINDS,
    NAMESPACED,
    VERSION,
    Binding,
    ClusterRole,
    RbacObject,
    Role,
)
from cli.rbac.soundness import flaws
from cli.suggestions import nearest
from rules.decode import DecodeError, decode_model
from rules.field import Path
from rules.request import User
from rules.texts import printable

_Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An object, and where it comes from."""

    object: RbacObject
    manifest: Manifest
    file: str


class RbacManifests:
    """The roles and bindings of some files; objects of other kinds are none of its business."""

    def __init__(
        self, sources: Iterable[Source], namespace: str, told: Collection[str] = ()
    ) -> None:
        """Read ``sources``; ``namespace`` is that of objects which need one and name none.

        Somebody else tells what is unreadable in the files at the paths ``told``.
        """
        self._namespace = namespace
        self._told = told
        self._entries: dict[_Key, _Entry] = {}
        self.is_sound = True
        """Whether these are all the objects of the files."""
        self.reports: Final = tuple(self._read(sources))
        """The files in which something is wrong that nobody else tells."""
        self.authorizer: Final = Authorizer(entry.object for entry in self._entries.values())

    def dangling(self, user: User) -> Iterator[str]:
        """A line about each binding that would grant ``user`` more if its role were here, too."""
        for entry in self._entries.values():
            binding = entry.object
            if isinstance(binding, Role | ClusterRole):
                continue
            if self.authorizer.is_dangling(binding, user):
                yield f"{entry.file}:{_missing(entry.manifest, binding)}"

    def _read(self, sources: Iterable[Source]) -> Iterator[FileReport]:
        for source in sources:
            documents = tuple(filter(None, self._read_file(source)))
            if documents:
                yield FileReport(source.name, documents)

    def _read_file(self, source: Source) -> Iterator[DocumentReport | None]:
        for part in read_parts(source):
            if isinstance(part, Unreadable):
                self.is_sound = False
                yield report_unreadable(part) if source.path not in self._told else None
            elif part.group_version[0] == GROUP and (found := list(self._add(part, source.name))):
                self.is_sound = False
                yield report_on(part, found)

    def _add(self, manifest: Manifest, file: str) -> Iterator[Finding]:
        """Take the object of ``manifest`` in, or say why not."""
        if manifest.problems:
            yield from json_problems(manifest)
            return
        kind = KINDS.get(manifest.name.kind)
        if kind is None or manifest.group_version[1] != VERSION:
            yield _misnamed(manifest)
            return
        try:
            item = decode_model(kind, manifest.value)
        except DecodeError as error:
            yield broken_at(manifest, checks.FIELD_TYPES, error.detail, error.path)
            return
        found = [broken_at(manifest, checks.SOUND_RBAC, text, path) for path, text in flaws(item)]
        yield from found
        if not found:
            yield from self._keep(_Entry(_placed(item, self._namespace), manifest, file))

    def _keep(self, entry: _Entry) -> Iterator[Finding]:
        meta = entry.object.metadata
        key = (entry.manifest.name.kind, meta.namespace, meta.name)
        first = self._entries.setdefault(key, entry)
        if first is not entry:
            place = f"{first.file}:{first.manifest.locate('metadata.name').line}"
            message = f"stands in {place} already; keep one"
            yield broken_at(entry.manifest, checks.SOUND_RBAC, message, Path("metadata.name"))


def _placed(item: RbacObject, namespace: str) -> RbacObject:
    """``item`` where kubectl would create it."""
    meta = item.metadata
    namespace = (meta.namespace or namespace) if isinstance(item, NAMESPACED) else ""
    return replace(item, metadata=replace(meta, namespace=namespace))


def _misnamed(manifest: Manifest) -> Finding:
    kind = manifest.name.kind
    if kind in KINDS:
        message = f"must be '{GROUP}/{VERSION}', the only version there is"
        return broken_at(manifest, checks.KNOWN_KIND, message, Path("apiVersion"))
    message = f"must be one of {', '.join(KINDS)}; not '{kind}'{nearest(kind, KINDS)}"
    return broken_at(manifest, checks.KNOWN_KIND, message, Path("kind"))


def _missing(manifest: Manifest, binding: Binding) -> str:
    place, reference = manifest.locate("roleRef"), binding.role_ref
    return (
        f"{place.line}:{place.column}: {reference.kind} '{printable(reference.name)}' is not among "
        "the manifests of --rbac: here this binding grants nothing"
    )
