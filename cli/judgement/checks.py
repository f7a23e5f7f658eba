"""What the command line itself checks, before and beside the rules.

The rules judge requests; these checks are about files: what an API server would refuse while it
reads a request, and what would not do what its author wants.
"""

from typing import Any, Final

from rules.rule import Enforcement, Rule

READABLE_FILE: Final = "readable-file"
JSON_VALUES: Final = "json-values"
FIELD_TYPES: Final = "field-types"
KNOWN_KIND: Final = "known-kind"
KNOWN_FIELDS: Final = "known-fields"
STORED_OBJECT: Final = "stored-object"
EFFECTIVE_RESPONDERS: Final = "effective-responders"
SOUND_RBAC: Final = "sound-rbac"

_DOCUMENTS: Final[dict[str, tuple[str, Enforcement]]] = {
    READABLE_FILE: (
        """A manifest must be readable: valid YAML or JSON in UTF-8, of at most 32 MiB.

        Why: kubectl would stop at it. Other documents of the file are judged all the same.
        Source: docs/ci.md (Usher's own).
        Admitted: one object a document, documents separated by '---'
        Refused: a file that was cut off half-way; tabs for indentation; a Helm template
        """,
        Enforcement.DENY,
    ),
    JSON_VALUES: (
        """A YAML document must mean one JSON object, and every reader must agree on which.

        Why: the API knows JSON only. Repeated keys, keys that are no text, tags, NaN, cyclic or
        exploding aliases and more than 100 levels are dropped, changed or refused on the way.
        Source: sigs.k8s.io/yaml, and the strict decoding of API servers.
        Admitted: anchors, aliases and merge keys
        Refused: {intent: Eviction, intent: Withdrawn}
        """,
        Enforcement.DENY,
    ),
    FIELD_TYPES: (
        """Every field must have the type that the API gives it.

        Why: an API server cannot read the object otherwise (400 Bad Request).
        Source: v1alpha1/types.go; times are RFC 3339.
        Admitted: {priority: 10000}
        Refused: {priority: "10000"}
        """,
        Enforcement.DENY,
    ),
    KNOWN_KIND: (
        """An object must name its apiVersion and kind, and lifecycle.k8s.io has two kinds.

        Why: a misspelt kind would pass unjudged. Kinds of other groups are skipped.
        Source: v1alpha1/register.go.
        Admitted: {apiVersion: lifecycle.k8s.io/v1alpha1, kind: EvictionRequest}
        Refused: {apiVersion: lifecycle.k8s.io/v1alpha1, kind: EvictionRequst}
        """,
        Enforcement.DENY,
    ),
    KNOWN_FIELDS: (
        """An object should have no fields that the API does not know.

        Why: API servers drop them, so a misspelt field has no effect. With --strict this is an
        error, as with fieldValidation=Strict.
        Source: v1alpha1/types.go.
        Admitted: {requester: ops.acme.io/drain}
        Refused: {requestor: ops.acme.io/drain}
        """,
        Enforcement.WARN,
    ),
    STORED_OBJECT: (
        """A change needs exactly one stored object that it changes.

        Why: most rules compare. Objects are matched by kind, namespace and name; if both sides
        have a single one, those two are compared.
        Source: docs/ci.md (Usher's own).
        Admitted: --old with an object of the same kind, namespace and name
        Refused: --old without it, or with two of them
        """,
        Enforcement.DENY,
    ),
    EFFECTIVE_RESPONDERS: (
        """Responders should be declared where the cluster looks for them.

        Why: API servers that do not know spec.evictionResponders drop it (--mode crd), and those
        that do are not told to read the annotation (--mode native). Declare both to serve both.
        Source: docs/ci.md (Usher's own).
        Admitted: --mode crd and the annotation usher.dev/eviction-responders
        Refused: --mode crd and spec.evictionResponders alone
        """,
        Enforcement.WARN,
    ),
    SOUND_RBAC: (
        """A manifest of --rbac must be one that an API server takes, and stand there once.

        Why: whoever judges by half of the roles refuses too much, or by a wrong one too little.
        Source: pkg/apis/rbac/validation.
        Admitted: a RoleBinding to a Role or a ClusterRole
        Refused: a ClusterRoleBinding to a Role; a rule without verbs
        """,
        Enforcement.DENY,
    ),
}

CHECKS: Final[dict[str, Rule[Any]]] = {
    name: Rule(name=name, doc=doc, enforcement=enforcement)
    for name, (doc, enforcement) in _DOCUMENTS.items()
}
"""Every check by its id, documented as rules are."""
