"""Finds Avro schemas whose data could fill the stack or the memory of its reader. Pure.

The compiled code of fastavro does not check how deep data is nested. Ten kilobytes in a schema that
refers to itself end the process, and so does a value that is written. It also believes the number
of items that an array names, though items may take no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Types = Mapping[str, Any]
"""Full name -> the schema of that name."""
MOST_LEVELS = 200
"""How many containers may be nested in a value to be written. JSON is read to the same depth."""


def is_recursive(schema: Any, named: Types) -> bool:
    """Return whether a type contains itself, so that the data decides how deep it is nested."""
    return _contains_outer_type(schema, named, frozenset(), set())


def has_weightless_items(schema: Any, named: Types) -> bool:
    """Return whether there is an array whose items take no bytes.

    Its data may name any number of items, and be short.
    """
    seen: set[str] = set()
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            if part in seen:
                continue
            seen.add(part)
        elif (
            isinstance(part, Mapping)
            and part["type"] == "array"
            and _is_weightless(part["items"], named, frozenset())
        ):
            return True
        todo += _parts(part, named)
    return False


def is_deep(value: Any) -> bool:
    """Return whether a value has more than :data:`MOST_LEVELS` levels."""
    level = [value]
    for _ in range(MOST_LEVELS):
        next_level: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                next_level += item.values()
            elif isinstance(item, list | tuple):
                next_level += item
        if not next_level:
            return False
        level = next_level
    return True


def _contains_outer_type(schema: Any, named: Types, outer: frozenset[str], done: set[str]) -> bool:
    """Return whether a schema refers to one of the types that contain it.

    Args:
        schema: The schema.
        named: All named types.
        outer: The names of the types that contain it.
        done: The names of the types that were found not to be recursive.
    """
    if isinstance(schema, str):
        if schema in outer:
            return True
        name = schema
        inside = outer
    elif isinstance(schema, Mapping) and schema.get("name") is not None:
        name = schema["name"]
        inside = outer | {name}
    else:
        return any(_contains_outer_type(part, named, outer, done) for part in _parts(schema, named))
    if name in done:
        return False
    if any(_contains_outer_type(part, named, inside, done) for part in _parts(schema, named)):
        return True
    done.add(name)
    return False


def _is_weightless(schema: Any, named: Types, outer: frozenset[str]) -> bool:
    if isinstance(schema, str):
        if schema not in named:
            return schema == "null"
        return schema in outer or _is_weightless(named[schema], named, outer | {schema})
    if isinstance(schema, list):
        # A union writes a byte for the branch.
        return False
    kind = schema["type"]
    if kind in ("record", "error"):
        return all(_is_weightless(part, named, outer) for part in _parts(schema, named))
    if kind == "fixed":
        return not schema["size"]
    return kind not in ("array", "map", "enum") and _is_weightless(kind, named, outer)


def _parts(schema: Any, named: Types) -> Iterator[Any]:
    """Yield the schemas that a schema directly consists of."""
    if isinstance(schema, str):
        if schema in named:
            yield named[schema]
    elif isinstance(schema, list):
        yield from schema
    elif schema["type"] in ("record", "error"):
        yield from (field["type"] for field in schema["fields"])
    elif schema["type"] == "array":
        yield schema["items"]
    elif schema["type"] == "map":
        yield schema["values"]
    elif schema["type"] not in ("enum", "fixed"):
        yield schema["type"]
