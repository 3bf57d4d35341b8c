"""Writes the TOML that an ``application.properties`` means, without its secrets. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reactive_kafka.config.layers import Leaf
from reactive_kafka.config.microprofile.property_values import Given, alpha
from reactive_kafka.config.microprofile.quarkus_layer import QuarkusConfig
from reactive_kafka.config.scan import KeyPath
from reactive_kafka.config.secrets import is_secret, masked

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SECRET = "a secret: set the variable, or name a file with it in"
_DEFAULT = "SmallRye's default"


def toml_of(meant: QuarkusConfig, head: str, warnings: Iterable[str]) -> str:
    """Return the text of a TOML file that says the same.

    Its first lines are comments: *head* and the *warnings*.
    """
    comments = [head, *(f"warning: {warning}" for warning in warnings)]
    lines = [f"# {' '.join(comment.split())}" for comment in comments]
    return "\n".join((*lines, *_tables(meant))) + "\n"


def _tables(meant: QuarkusConfig) -> Iterator[str]:
    # Of two leaves with one path the last one counts.
    leaves = {leaf.path: leaf for leaf in meant.layer.leaves}
    tables: dict[KeyPath, list[Leaf]] = {}
    for path, leaf in leaves.items():
        tables.setdefault(path[:-1], []).append(leaf)
    order = ("kafka", "schema_registry", "incoming", "outgoing")
    channels = list(dict.fromkeys(path[:2] for path in tables))
    for table in sorted(
        tables, key=lambda path: (order.index(path[0]), channels.index(path[:2]), len(path))
    ):
        yield f"\n[{'.'.join(map(_key, table))}]"
        for leaf in tables[table]:
            yield _to_be_set(leaf) if meant.new_id in str(leaf.value) else _line(leaf, meant.given)


def _to_be_set(leaf: Leaf) -> str:
    """Return a comment for a key whose value is new at each start.

    Written down, it would be one value for all replicas and for all time.
    """
    key = leaf.path[-1]
    example = "..."
    why = "SmallRye takes a new value at each start; set your own"
    if key == "group_id":
        example = leaf.path[1]
        why = "SmallRye takes a new group at each start; set the one that all replicas share"
    elif key == "transactional_id":
        why = "a new one at each start with SmallRye; set one that no other replica has"
    return f"# {_key(key)} = {_quoted(example)}  # {why}"


def _line(leaf: Leaf, given: Mapping[KeyPath, Given]) -> str:
    key = leaf.path[-1]
    source = given.get(leaf.path)
    value = _value(leaf.value)
    why = "" if source is not None else _DEFAULT
    if source is not None and (is_secret(key) or masked(key, leaf.value) != leaf.value):
        value = f'"${{{_variable(leaf.path, source)}}}"'
        why = f"{_SECRET} {key}{'.file' if '.' in key else '_file'}"
    return f"{_key(key)} = {value}" + (f"  # {why}" if why else "")


def _variable(path: KeyPath, source: Given) -> str:
    """Return the variable that should hold a secret.

    That is the one that it comes from, else one with the name of the property.
    """
    name = source.reference or alpha(source.name)
    # The property holds the user and the password, so that its variable cannot be used as it is.
    is_part = path == ("schema_registry", "password")
    return f"{name}_PASSWORD" if is_part else name


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value) if isinstance(value, int) else _quoted(value.replace("${", "$${"))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
