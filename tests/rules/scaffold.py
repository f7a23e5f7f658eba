"""``make rule NAME=my-rule``: the files of a new rule, ready to be filled in."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_MODULE = '''"""TODO: what must hold, as one sentence.

Why: TODO
Source: TODO (file and function upstream, or "Usher's own guard")
Admitted: TODO
Refused: TODO
"""

from collections.abc import Iterator

from rules.api import Eviction
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if new == old:
        yield invalid(_FIELD, None, "TODO: must …")


RULE: Rule[Eviction] = Rule(
    name="{name}", doc=__doc__, reads=("status.responders",), update_status=_check
)
'''

_CASES = """- name: TODO what is admitted
  base: eviction-active
  wanted: []
- name: TODO what is refused
  base: eviction-active
  set: {"status.responders[0].message": TODO}
  wanted: [{type: Invalid, field: status}]
"""


def main(arguments: list[str]) -> None:
    """Write the module and the cases of the rule that ``arguments`` name."""
    if len(arguments) != 1 or not arguments[0].replace("-", "").isalpha():
        sys.exit("usage: make rule NAME=my-rule (kebab-case, a noun that states the lawful state)")
    (name,) = arguments
    module = ROOT / "rules" / "eviction" / f"{name.replace('-', '_')}.py"
    cases = ROOT / "tests" / "cases" / f"{name}.yaml"
    for path, content in ((module, _MODULE.replace("{name}", name)), (cases, _CASES)):
        if path.exists():
            sys.exit(f"{path.relative_to(ROOT)} exists already")
        path.write_text(content)
        print(f"wrote {path.relative_to(ROOT)}")
    print("next: list the module in rules/catalog.py, fill in both files, run make check")


if __name__ == "__main__":
    main(sys.argv[1:])
