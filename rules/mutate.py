"""From a request to a patch: what the mutations of the catalogue change in it."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rules import formats
from rules.decode import decode_model
from rules.facts import NO_FACTS, Facts, Question
from rules.mutation import Mode, Mutation, Setting
from rules.mutations import fill_target_uid, register_responders, trim_requesters
from rules.patch import Document, Step, assign
from rules.request import Request

_LISTED: Final[tuple[Mutation[Any], ...]] = (
    fill_target_uid.MUTATION,
    trim_requesters.MUTATION,
    register_responders.MUTATION,
)
MUTATIONS: Final[dict[str, Mutation[Any]]] = {mutation.name: mutation for mutation in _LISTED}
"""Every mutation by its id, in the order in which they act: the only list."""


@dataclass(frozen=True, slots=True)
class MutationPolicy:
    """What the configuration says about mutations."""

    on: AbstractSet[str] = frozenset(MUTATIONS)
    """The ids of those that may act. ``register-responders`` does nothing without policies."""
    mode: Mode = Mode.AUTO


class Made(NamedTuple):
    """A change that a mutation has made."""

    mutation: str
    note: str
    """What it changed, for audit logs."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What to answer: the steps of a patch, and who wants them."""

    steps: tuple[Step, ...] = ()
    made: tuple[Made, ...] = ()
    unanswered: tuple[str, ...] = ()
    """The mutations that were left out, because nobody answers what they ask."""


UNCHANGED: Final = Revision()


class Draft:
    """One request under revision: asked what has to be known, and revised.

    ``document`` is the object of the request as it came.
    """

    def __init__(
        self, request: Request, document: Document, policy: MutationPolicy = MutationPolicy()
    ) -> None:
        self._request = request
        self._document = document
        self._setting = Setting(request.namespace, policy.mode)
        self._due = [
            mutation
            for mutation in _LISTED
            if mutation.name in policy.on and _looks_at(mutation, request)
        ]

    def questions(self) -> dict[Question, bool]:
        """What the mutations ask. All of it must be had: half a mutation is none."""
        return {question: True for mutation in self._due for question in self._asked(mutation)}

    def revision(self, facts: Facts = NO_FACTS) -> Revision:
        """Revise the request by ``facts``. Each mutation sees what those before it have done."""
        new, document = self._request.object, self._document
        setting = self._setting._replace(facts=facts)
        steps: list[Step] = []
        made: list[Made] = []
        unanswered: list[str] = []
        for mutation in self._due:
            if not facts.answers.keys() >= set(self._asked(mutation)):
                unanswered.append(mutation.name)
                continue
            change = mutation.amend(new, document, old=self._request.old_object, setting=setting)
            if change is not None:
                document, step = assign(document, change.way, change.value)
                new = decode_model(mutation.kind, document)
                steps.append(step)
                made.append(Made(mutation.name, change.note))
        return Revision(tuple(steps), tuple(made), tuple(unanswered))

    def _asked(self, mutation: Mutation[Any]) -> list[Question]:
        if mutation.asks is None:
            return []
        return list(mutation.asks(self._request.object, setting=self._setting))


def _looks_at(mutation: Mutation[Any], request: Request) -> bool:
    return (
        type(request.object) is mutation.kind
        and not request.root
        and formats.is_short_name(request.namespace)  # all kinds have one, and URLs are made of it
        and (request.operation, request.subresource) == (mutation.operation, mutation.subresource)
    )
