"""Secrets: which values are secret, how to show values without them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reactive_kafka.near_names import near_names

MASK = "***"


class Secret(str):
    """A string that shows as ``***`` everywhere: ``str``, formats, JSON, pickle.

    Only :func:`revealed` returns its text. The string itself is ``***``, because JSON's encoder,
    ``%s`` and C code read it without calling a method. It compares and hashes as its text, because
    two spellings of one setting must agree.

    Attributes:
        file: The path of the file that it was read from; None: it was in the configuration.
    """

    __slots__ = ("_secret_text", "file")
    _secret_text: str
    file: str | None

    def __new__(cls, text: str, file: str | None = None) -> Secret:
        secret = super().__new__(cls, MASK)
        secret._secret_text = text
        secret.file = file
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
        """Return nothing, because the state would be shown or stored."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the mask instead of the text."""
        return Secret, (MASK,)


def revealed(value: Any) -> Any:
    """Return the text of a secret, and any other value as it is. Never show the result.

    Only for the client that needs the secret.
    """
    return value._secret_text if isinstance(value, Secret) else value


SECRET_NAMES = (
    r"(?i)password|passwd|passphrase|secret|token|jaas|credential"
    r"|(access|account|api|private)[._-]?key"
)
"""A pattern for names of secrets. Java reads it like Python."""
_SECRET_NAME = re.compile(SECRET_NAMES)
_SPARK_KEY = re.compile(r"(?:^|[._-])key(?:$|[._-])|[a-z]Key$")
# Whole names of a URL's parameters.
_SECRET_PARAMETERS = frozenset({"pw", "pwd", "pass", "auth", "key", "sig", "signature"})
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "jaas", "credentials")
_WORD = re.compile(r"\S+")
# Separates the parts of a URL.
_SEPARATOR = re.compile(r":(?://)?|[/,]")
# A parameter of a URL: ;token=...
_PARAMETER = re.compile(r"(?<=[;?&])([^=;&?\s]+)=([^;&\s]+)")

# A partition and a time, which is not a URL with a user.
_ASSIGNED = re.compile(r"[\w.-]{1,249}:\d{1,10}@\d{4}-\d\d-\d\d(?:[T ][\d:.Z+-]+)?")

_ASSIGN = "assign"
# In that key: a partition, and something that was meant to be a time. A URL with its user looks
# like this only if it has no scheme and its password is a number or a star, which is never written
# here.
_MEANT_AS_ASSIGNED = re.compile(r"[\w.-]{1,249}:(?:\d{1,10}|\*)@[\w:.+ -]{0,90}")


def is_secret(name: str) -> bool:
    """Return whether values of this name are never shown: password, secret, token, jaas..."""
    return _SECRET_NAME.search(name) is not None


def may_be_secret(name: str) -> bool:
    """Return whether an unknown *name* may be a misspelt secret: ``sasl_pasword``, ``sasl_pw``."""
    parts = re.split(r"[._-]", name.lower())
    near = any(near_names(part, _SECRET_WORDS, likeness=0.7) for part in parts)
    return near or is_secret(name) or "sasl" in parts or "ssl" in parts


def protect(name: str, value: Any) -> Any:
    """Return the value, as a :class:`Secret` if its name or a URL with a user makes it one."""
    if not isinstance(value, str) or isinstance(value, Secret):
        return value
    if is_secret(name) or _without_secrets(value) != value:
        return Secret(value)
    return value


def protect_spark(name: str, value: str | bool | int | float) -> Any:
    """Protect the value of a property of Spark's.

    There a bare ``key`` is the key of a cloud account. A number may be a secret, too, because Spark
    takes it as text.
    """
    if is_secret(name) or _SPARK_KEY.search(name):
        return Secret(str(value))
    return protect(name, value)


def masked(name: str, value: Any) -> Any:
    """Return the value as it may be shown: secrets as ``***``, URLs without their user.

    Containers are masked inside.
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
    """Mask the user and the secret parameters of URLs; return any other text as it is."""
    if "://" in value:
        value = _PARAMETER.sub(
            lambda found: f"{found[1]}={MASK}" if _is_hidden(found[1]) else found[0], value
        )
    if "@" not in value or _ASSIGNED.fullmatch(value):
        return value
    return _WORD.sub(_without_user, value)


def _without_user(word: re.Match[str]) -> str:
    """Mask the part of a word before its last ``@``, if that is a user and a password.

    The last one counts, because a password may contain "/" and "@".
    """
    # This is one pass. A regular expression for the whole would start again at each character, and
    # takes minutes for a long text.
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
    """Return the value as one short line for an error: quoted, masked, cut."""
    value = masked(name, value)
    if value == MASK:
        return MASK
    if isinstance(value, bool):
        # As TOML, YAML and JSON spell it.
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
        # An integer of more digits than Python prints. A file may have one in hexadecimal.
        return f"<{type(value).__name__}>"
