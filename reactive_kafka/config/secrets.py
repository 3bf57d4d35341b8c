"""Secrets, what may be shown of configured values, and the one way to the text of a secret.
Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

MASK = "***"


class Secret(str):
    """A string that is ``***`` to everybody: ``str``, formats, JSON, pickle. Only :func:`revealed`
    gives its text.

    Its text is no part of the string, because JSON's encoder, ``%s`` and C code look at that and
    ask no method. It compares, and hashes, as its text: two spellings of one setting must agree.
    """

    __slots__ = ("_secret_text",)
    _secret_text: str

    def __new__(cls, text: str) -> Secret:
        secret = super().__new__(cls, MASK)
        secret._secret_text = text
        return secret

    def __eq__(self, other: object) -> bool:
        return bool(self._secret_text == revealed(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._secret_text)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _: Any) -> Secret:
        return self

    def __getstate__(self) -> None:
        """Nothing: whoever asks wants to show or to store it."""

    # Pickled without its text: what reads it has a mask.
    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (MASK,)


def revealed(value: Any) -> Any:
    """The text of a secret, for the client that it was made for; any other value as it is. Never
    show the result.
    """
    return value._secret_text if isinstance(value, Secret) else value


SECRET_NAMES = r"(?i)password|passwd|passphrase|secret|token|jaas|credential|(access|account|api|private)[._-]?key"
"""A pattern for names of secrets, which Java reads as Python does."""
_SECRET_NAME = re.compile(SECRET_NAMES)
_SPARK_KEY = re.compile(r"(?:^|[._-])key(?:$|[._-])|[a-z]Key$")
# Of a URL, the whole name.
_SECRET_PARAMETERS = frozenset({"pw", "pwd", "pass", "auth", "key", "sig", "signature"})
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "jaas", "credentials")
_WORD = re.compile(r"\S+")
# Of the parts of a URL.
_SEPARATOR = re.compile(r":(?://)?|[/,]")
# Of a URL: ;token=...
_PARAMETER = re.compile(r"(?<=[;?&])([^=;&?\s]+)=([^;&\s]+)")

# No URL: a partition and a time.
_ASSIGNED = re.compile(r"[\w.-]{1,249}:\d{1,10}@\d{4}-\d\d-\d\d(?:[T ][\d:.Z+-]+)?")

_ASSIGN = "assign"
# What stands in that key: a partition with whatever was meant to be a time. No URL has its user in
# this form, but for one without a scheme whose password is a number, which nobody writes here.
_MEANT_AS_ASSIGNED = re.compile(r"[\w.-]{1,249}:\d{1,10}@[\w:.+ -]{0,60}")


def is_secret(name: str) -> bool:
    """True for names whose values are never shown: those with password, secret, token, jaas or the
    like in them.
    """
    return _SECRET_NAME.search(name) is not None


def may_be_secret(name: str) -> bool:
    """True if an unknown *name* may be a misspelt secret: ``sasl_plain_pasword``, ``sasl_pw``."""
    parts = re.split(r"[._-]", name.lower())
    near = any(difflib.get_close_matches(part, _SECRET_WORDS, n=1, cutoff=0.7) for part in parts)
    return near or is_secret(name) or "sasl" in parts or "ssl" in parts


def protect(name: str, value: Any) -> Any:
    """The value; as a :class:`Secret` if its name, or the user part of a URL, makes it one."""
    if not isinstance(value, str) or isinstance(value, Secret):
        return value
    return Secret(value) if is_secret(name) or _without_secrets(value) != value else value


def protect_spark(name: str, value: str | bool | int | float) -> Any:
    """The same for a property of Spark's, where a bare ``key`` is one of a cloud's, and numbers are
    text anyway.
    """
    if is_secret(name) or _SPARK_KEY.search(name):
        return Secret(str(value))
    return protect(name, value)


def masked(name: str, value: Any) -> Any:
    """The value as it may be shown: secrets as ``***``, URLs without their user part, also inside
    containers.
    """
    if is_secret(name):
        return MASK
    if isinstance(value, str):
        text = revealed(value)
        if name == _ASSIGN and _MEANT_AS_ASSIGNED.fullmatch(text.strip()):
            return text
        url = _without_secrets(text)
        return MASK if url == text and isinstance(value, Secret) else url
    if isinstance(value, Mapping):
        return {masked("", str(key)): masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(name if name == _ASSIGN else "", item) for item in value]
    return value


def _without_secrets(value: str) -> str:
    """A URL without its user part and the values of its secret parameters; any other text as it
    is.
    """
    if "://" in value:
        value = _PARAMETER.sub(
            lambda found: f"{found[1]}={MASK}" if _is_hidden(found[1]) else found[0], value
        )
    return (
        value if "@" not in value or _ASSIGNED.fullmatch(value) else _WORD.sub(_without_user, value)
    )


def _without_user(word: re.Match[str]) -> str:
    """A word without what stands before its last ``@``, if that is a user: a password may itself
    hold "/" and "@".
    """
    # One pass over it, and no regular expression for all of it: that would begin anew at each
    # character of a long text.
    text = word[0]
    start = 0
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
        # As TOML, YAML and JSON have it.
        line = str(value).lower()
    elif value is None or isinstance(value, str | int | float | list | dict):
        line = _repr(value)
    else:
        # A date, or an object from code, whose repr may show anything.
        line = f"<{type(value).__name__}>"
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _repr(value: str | float | list[Any] | dict[str, Any] | None) -> str:
    try:
        return ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except ValueError:
        # An integer of more digits than Python prints; in hex a file may well have one.
        return f"<{type(value).__name__}>"
