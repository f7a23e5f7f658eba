"""Text formats of Kubernetes names, as predicates over strings.

Source: apimachinery ``pkg/api/validate/content`` and ``pkg/api/validate/strfmt.go``, 1.37.2.
Every predicate is total: any text in, a bool out. ``re.ASCII`` and ``fullmatch`` throughout,
because ``$`` would let a trailing newline pass.
"""

import re
from typing import Final

from rules.recall import recalled

MAX_LABEL_BYTES: Final = 63
"""Longest DNS label, label value and name part of a key, in bytes (RFC 1123 § 2.1)."""
MAX_LONG_NAME_BYTES: Final = 253
"""Longest DNS subdomain, in bytes (RFC 1123 § 2.1)."""

_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_is_dns_label = re.compile(_DNS_LABEL, re.ASCII).fullmatch
_is_dns_subdomain = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII).fullmatch
_is_name_part = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII).fullmatch
_is_uuid = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII
).fullmatch
_is_condition_reason = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII).fullmatch

LONG_NAME_HELP: Final = (
    "must be lower case alphanumeric characters, '-' or '.', start and end with an alphanumeric "
    f"character, and have at most {MAX_LONG_NAME_BYTES} bytes (for example 'web-0.example')"
)
SHORT_NAME_HELP: Final = (
    "must be lower case alphanumeric characters or '-', start and end with an alphanumeric "
    f"character, and have at most {MAX_LABEL_BYTES} bytes (for example 'team-a')"
)
PREFIXED_KEY_HELP: Final = (
    "must be '<domain>/<name>': a lower case DNS subdomain, one '/', and a name of at most "
    f"{MAX_LABEL_BYTES} alphanumeric characters, '-', '_' or '.' that starts and ends with an "
    "alphanumeric character (for example 'db.acme.io/failover')"
)
QUALIFIED_NAME_HELP: Final = (
    f"must be a name of at most {MAX_LABEL_BYTES} alphanumeric characters, '-', '_' or '.' that "
    "starts and ends with an alphanumeric character, with an optional DNS subdomain and '/' "
    "before it (for example 'app' or 'acme.io/app')"
)
LABEL_VALUE_HELP: Final = (
    f"must be empty or at most {MAX_LABEL_BYTES} alphanumeric characters, '-', '_' or '.' that "
    "start and end with an alphanumeric character"
)
PATH_SEGMENT_HELP: Final = "may not be '.' or '..' and may not contain '/' or '%'"
UUID_HELP: Final = "must be a lowercase UUID in 8-4-4-4-12 format (see metadata.uid of the target)"
CONDITION_REASON_HELP: Final = (
    "must start with a letter, contain only letters, digits and '_,:', and end with a letter, a "
    "digit or '_' (for example 'PodDeleted')"
)


def fits(text: str, limit: int) -> bool:
    """Whether ``text`` has at most ``limit`` bytes as UTF-8."""
    # A code point has one to four bytes, so most texts need no encoding to be judged.
    length = len(text)
    return length <= limit and (length * 4 <= limit or byte_length(text) <= limit)


def byte_length(text: str) -> int:
    """The length of ``text`` as UTF-8, in bytes; total, also over lone surrogates."""
    return len(text.encode("utf-8", "surrogatepass"))


def is_short_name(text: str) -> bool:
    """A DNS label: a namespace name."""
    return fits(text, MAX_LABEL_BYTES) and _is_dns_label(text) is not None


def is_long_name(text: str) -> bool:
    """A DNS subdomain: an object's name."""
    return fits(text, MAX_LONG_NAME_BYTES) and _is_dns_subdomain(text) is not None


def is_name_part(text: str) -> bool:
    """The part of a key behind the slash, and a label value that is not empty."""
    return fits(text, MAX_LABEL_BYTES) and _is_name_part(text) is not None


@recalled
def is_qualified_name(text: str) -> bool:
    """A label key or finalizer: a name part, with an optional domain before it."""
    domain, slash, name = text.rpartition("/")
    return is_name_part(name) and (not slash or is_long_name(domain))


@recalled
def is_prefixed_key(text: str) -> bool:
    """A key whose domain is not optional: a requester's or a responder's name."""
    domain, slash, name = text.partition("/")
    return slash == "/" and is_long_name(domain) and is_name_part(name)


def is_label_value(text: str) -> bool:
    """A label's value, which may be empty."""
    return not text or is_name_part(text)


def is_uuid(text: str) -> bool:
    """A UID: 36 characters of lowercase hexadecimal in 8-4-4-4-12."""
    return _is_uuid(text) is not None


@recalled
def is_condition_reason(text: str) -> bool:
    """A condition's reason; its length is judged apart."""
    return _is_condition_reason(text) is not None


def is_path_segment(text: str) -> bool:
    """A name that can stand in a URL path."""
    return text not in (".", "..") and "/" not in text and "%" not in text
