"""Reading the policies that a cluster has.

Not a rule: it decides which policies count. One that the rules refuse can only be stored while the
webhook and the definition were both out of work. It does nothing at all: half a policy would be
hard to foresee, and an unlawful responder would get the pods refused.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rules.declared import walk
from rules.decode import DecodeError, decode_model
from rules.field import Path
from rules.policies import AnyPolicy
from rules.policy.selectors import judge_selector


def read_policies(model: type[AnyPolicy], documents: Iterable[Any]) -> tuple[AnyPolicy, ...]:
    """The lawful ones of ``documents``, all of one kind, by name."""
    return tuple(sorted(_lawful(model, documents), key=lambda policy: policy.metadata.name))


def _lawful(model: type[AnyPolicy], documents: Iterable[Any]) -> Iterator[AnyPolicy]:
    for document in documents:
        try:
            policy = decode_model(model, document)
        except DecodeError:
            continue
        if not _is_broken(policy):
            yield policy


def _is_broken(policy: AnyPolicy) -> bool:
    spec, path = policy.spec, Path("spec")
    selectors = (spec.pod_selector, getattr(spec, "namespace_selector", None))
    return any(walk(path, spec, None, updating=False)) or any(
        any(judge_selector(path, selector)) for selector in selectors if selector is not None
    )
