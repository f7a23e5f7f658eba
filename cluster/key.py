"""Names of objects."""

from typing import NamedTuple


class Key(NamedTuple):
    """A namespaced object, of whatever kind."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Key":
        """The key ``<namespace>/<name>``, as work queues hold it. Raises ValueError."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError("must be <namespace>/<name>")
        return cls(namespace, name)
