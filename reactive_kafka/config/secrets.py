"""What may be shown of configured values: no secrets, and no passwords in URLs. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any


class Secret(str):
    """A string whose repr is ``***``. Clients take it as the str it is; never log one with ``%s``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


MASK = "***"
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|secret|token|jaas|credential|(access|account|api|private)[._-]?key", re.IGNORECASE
)
_SECRET_PARAMETERS = frozenset({"pw", "pwd", "pass", "auth", "key", "sig", "signature"})  # of a URL, the whole name
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "jaas", "credentials")
_WORD = re.compile(r"\S+")
_SEPARATOR = re.compile(r":(?://)?|[/,]")  # of the parts of a URL
_PARAMETER = re.compile(r"(?<=[;?&])([^=;&?\s]+)=([^;&\s]+)")  # of a URL: ;token=...

_ASSIGNED = re.compile(r"[\w.-]{1,249}:\d{1,10}@\d{4}-\d\d-\d\d(?:[T ][\d:.Z+-]+)?")  # no URL: a partition and a time


def is_secret(name: str) -> bool:
    """True for names whose values are never shown: those with password, secret, token, jaas or the like in them."""
    return _SECRET_NAME.search(name) is not None


def may_be_secret(name: str) -> bool:
    """True if an unknown *name* may be a misspelt secret: ``sasl_plain_pasword``, ``sasl_pw``."""
    parts = re.split(r"[._-]", name.lower())
    near = any(difflib.get_close_matches(part, _SECRET_WORDS, n=1, cutoff=0.7) for part in parts)
    return near or is_secret(name) or "sasl" in parts or "ssl" in parts


def protect(name: str, value: Any) -> Any:
    """The value; as a :class:`Secret` if its name, or the user part of a URL, makes it one."""
    if isinstance(value, str) and (is_secret(name) or _without_secrets(value) != value):
        return Secret(value)
    return value


def masked(name: str, value: Any) -> Any:
    """The value as it may be shown: secrets as ``***``, URLs without their user part, also inside containers."""
    if is_secret(name):
        return MASK
    if isinstance(value, str):
        url = _without_secrets(value)
        return MASK if url == value and isinstance(value, Secret) else str(url)
    if isinstance(value, Mapping):
        return {masked("", str(key)): masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked("", item) for item in value]
    return value


def _without_secrets(value: str) -> str:
    """A URL without its user part and the values of its secret parameters; any other text as it is."""
    if "://" in value:
        value = _PARAMETER.sub(lambda found: f"{found[1]}={MASK}" if _is_hidden(found[1]) else found[0], value)
    return value if "@" not in value or _ASSIGNED.fullmatch(value) else _WORD.sub(_without_user, value)


def _without_user(word: re.Match[str]) -> str:
    """A word without what stands before its last ``@``, if that is a user: a password may itself hold "/" and "@"."""
    # One pass over it, and no regular expression for all of it: that would begin anew at each character of a long text.
    text, start = word[0], 0
    last = text.rfind("@")
    for found in _SEPARATOR.finditer(text, 0, max(last, 0)):
        if found[0] == "://" or (found[0] == ":" and found.start() > start):
            start = found.end() if found[0] == "://" else start
            return f"{text[:start]}{MASK}{text[last:]}"
        start = found.end()
    return text


def _is_hidden(parameter: str) -> bool:
    return is_secret(parameter) or parameter.lower() in _SECRET_PARAMETERS


def shown(name: str, value: Any, *, limit: int = 80) -> str:
    """The value as one short line of an error: quoted, masked, cut."""
    value = masked(name, value)
    if value == MASK:
        return MASK
    if isinstance(value, bool):
        line = str(value).lower()  # as TOML, YAML and JSON have it
    elif value is None or isinstance(value, str | int | float | list | dict):
        line = _repr(value)
    else:
        line = f"<{type(value).__name__}>"  # a date, or an object from code, whose repr may show anything
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _repr(value: str | float | list[Any] | dict[str, Any] | None) -> str:
    try:
        return ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except ValueError:  # an integer of more digits than Python prints; in hex a file may well have one
        return f"<{type(value).__name__}>"
