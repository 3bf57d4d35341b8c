"""JSON Schemas for the kinds of configured values: patterns, numbers, lists. Pure.

Nothing here is narrower than what the loader accepts. The patterns mean the same in JavaScript,
Rust and Python. In JavaScript ``\\w`` is ASCII only, so letters are written as what they are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any] | bool

# A letter, a digit or an underscore.
_WORD = r"[^\x00-/:-@\[-^`{-\x7f]"
_LETTER = r"[^\x00-@\[-^`{-\x7f]"
_HOST_PART = r"[^\x00-,./:-@\[-^`{-\x7f]"
DOTTED = rf"{_LETTER}{_WORD}*(\.{_LETTER}{_WORD}*)*"
"""Python names with dots between them."""
_NUMBER = r"[0-9]+(\.[0-9]+)?"
_ABOVE_0 = r"(0*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.0*[1-9][0-9]*)"
_SIZE_UNIT = "(B|kB|KB|MB|GB|KiB|MiB|GiB)"


def text(pattern: str) -> Schema:
    """Return the schema of strings that match *pattern* as a whole."""
    return {"type": "string", "pattern": f"^{pattern}$"}


def either(*schemas: Schema) -> Schema:
    """Return the schema of what fits one of *schemas*."""
    return {"anyOf": list(schemas)}


def one_of(values: tuple[str | int, ...]) -> Schema:
    """Return the schema of these values."""
    return {"enum": list(values)}


def whole(least: int, most: int) -> Schema:
    """Return the schema of whole numbers from *least* to *most*."""
    return {"type": "integer", "minimum": least, "maximum": most}


def items(pattern: str, *, listed: str | None = None, is_set: bool = True) -> Schema:
    """Return the schema of a list of strings, or of one string with commas.

    Args:
        pattern: What an item looks like.
        listed: What an item of a list looks like, if that differs.
        is_set: The items of a list must differ.
    """
    item = {"type": "string", "pattern": f"^{listed or pattern}$"}
    item_list = {
        "type": "array",
        "items": either(item, REFERENCE),
        "minItems": 1,
        "uniqueItems": is_set,
    }
    return either(text(rf"\s*{pattern}\s*(,\s*{pattern}\s*)*"), item_list)


def without_ending(endings: tuple[str, ...]) -> Schema:
    """Return the schema of strings that end with none of *endings*, whatever their case."""
    in_any_case = ["".join(f"[{char}{char.upper()}]" for char in ending) for ending in endings]
    return {**ANY_TEXT, "not": {"pattern": rf"({'|'.join(in_any_case)})(?!\s)$"}}


REFERENCE = {"type": "string", "pattern": r"\$\{"}
"""A string with a reference ``${VAR}``, which may mean any value except a table."""
BOOLEAN = {"type": "boolean"}
ANY_TEXT = {"type": "string", "pattern": r"\S"}
OBJECT = text(f"{DOTTED}:{DOTTED}")
_SECONDS = {"type": "number", "maximum": 10**9}
TIME = either(text(rf"\s*{_NUMBER} ?(ms|s|m|h)\s*"), {**_SECONDS, "minimum": 0})
SOME_TIME = either(text(rf"\s*{_ABOVE_0} ?(ms|s|m|h)\s*"), {**_SECONDS, "exclusiveMinimum": 0})
SIZE = either(text(rf"\s*{_ABOVE_0} ?{_SIZE_UNIT}\s*"), whole(1, 2**63 - 1))
# Any topic name except "." and "..".
CONFIG: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": r"\S"},
        {"type": ["boolean", "number"]},
        {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"\S"}},
    ]
}
_TOPIC = r"([\w-][\w.-]{0,248}|\.[\w-][\w.-]{0,247}|\.\.[\w.-]{1,247})".replace(r"\w", "a-zA-Z0-9_")
TOPIC = text(_TOPIC)
TOPICS = items(_TOPIC)
RETRY_TOPICS = items("[a-zA-Z0-9._-]{0,247}_[0-9]{1,12}")
_HOST = rf"{_HOST_PART}{{1,63}}(\.{_HOST_PART}{{1,63}})*\.{{0,2}}"
HOSTS = items(_HOST)
_NEEDED_PORT = (
    "(:(0*[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))"
)
_PORT = f"{_NEEDED_PORT}?"
_SERVER = rf"(\[[^\]\s]+\]|{_HOST}){_PORT}"
_PEER = rf"(\[[0-9a-fA-F:.]+\]|{_HOST}){_NEEDED_PORT}"
PEERS = items(_PEER, listed=rf"\s*{_PEER}\s*")
SERVERS = items(_SERVER, listed=rf"\s*{_SERVER}\s*", is_set=False)
_REGISTRY = (
    rf"https?://(\[[0-9a-fA-F:.]+\]|[^\x00-,/:-@\[-^`{{-\x7f]+){_PORT}"
    r"(/[^\x00-$&-,:-@\[-^`{-}\x7f]*)?"
)
REGISTRIES = either(text(r"\s*memory://\s*"), {"const": ["memory://"]}, items(_REGISTRY))
TOKEN = text("[!-~]+")
EXCEPTIONS = items(DOTTED, listed=rf"\s*{DOTTED}\s*")
RATE = text(
    r"\s*(0{0,9}[1-9][0-9]{0,9}(\.[0-9]{1,9})?|0{1,10}\.0{0,8}[1-9][0-9]{0,8}) ?/ ?[smh]\s*"
)
RATE_BY = either(one_of(("key", "partition")), text(r"header:\s*\S[\s\S]*"))
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
NAMES = items(r"[^\s,][^,]*", listed=r"[\s\S]*\S[\s\S]*")
HEADER_VALUES = either(
    {"type": "string"},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
)
_ASSIGNED = (
    r"[a-zA-Z0-9._-]{1,249}:(\*(@[^,]+)?|[0-9]{1,10}(:(-1|[0-9]{1,19}(\.\.[0-9]{1,19})?)|@[^,]+)?)"
)
ASSIGN = items(_ASSIGNED, listed=rf"\s*{_ASSIGNED.replace('[^,]', '.')}\s*")
ORDERING_KEY = either(text(r"header:\s*\S[\s\S]*"), OBJECT)
STORE = {"type": "string", "pattern": "://"}
MASTER = text(
    r"\s*(local|local\[\s*([1-9]\d*|\*)\s*(,\s*[1-9]\d*\s*)?\]"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://\S+|yarn|k8s://\S+)\s*"
)
REMOTE = text(rf"\s*sc://(\[[^\]\s]+\]|[^\s/:;]+){_PORT}(/|/(;[^\s;=]+=[^;\s]+)+)?\s*")
