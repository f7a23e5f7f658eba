"""Guards ask about callers only where the answer matters."""

from types import SimpleNamespace
from typing import Any

import pytest

from rules.facts import WHO, Question
from rules.field import Path
from rules.guards.controller_fields import _asks


@pytest.mark.parametrize(
    ("field", "questions"), [("status.responders", []), ("status.conditions", [WHO])]
)
def test_who_writes_matters_for_the_fields_of_controllers(
    field: str, questions: list[Question]
) -> None:
    context: Any = SimpleNamespace(changed={Path(field)})
    nothing: Any = None
    assert list(_asks(nothing, old=nothing, context=context)) == questions
