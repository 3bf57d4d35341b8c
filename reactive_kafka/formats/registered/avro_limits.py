"""What the data of an Avro schema could do to whoever reads it: fill the stack, or the memory.
Pure.

The compiled code of fastavro goes down into nested data without a look at the depth, so that ten
kilobytes of a schema that refers to itself end the process, and so does a value to be written; and
it believes how many items an array has, though items may take no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Types = Mapping[str, Any]
"""Full name -> the schema of that name."""
MOST_LEVELS = 200
"""Of containers inside of containers in a value to be written; of JSON no more are read, either."""


def is_recursive(schema: Any, named: Types) -> bool:
    """Whether a type stands inside of itself: the data says how deep it is."""
    return _is_inside(schema, named, frozenset(), set())


def has_weightless_items(schema: Any, named: Types) -> bool:
    """Whether there is an array of items that take no bytes: the data may say any number of them,
    and be short.
    """
    seen: set[str] = set()
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            if one in seen:
                continue
            seen.add(one)
        elif (
            isinstance(one, Mapping)
            and one["type"] == "array"
            and _is_weightless(one["items"], named, frozenset())
        ):
            return True
        todo += _parts(one, named)
    return False


def is_deep(value: Any) -> bool:
    """Whether a value has more levels than are written of it."""
    level = [value]
    for _ in range(MOST_LEVELS):
        containers = [one for one in level if isinstance(one, Mapping | list | tuple)]
        level = [
            inside
            for one in containers
            for inside in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            return False
    return True


def _is_inside(schema: Any, named: Types, outer: frozenset[str], done: set[str]) -> bool:
    name = (
        schema
        if isinstance(schema, str)
        else schema.get("name")
        if isinstance(schema, Mapping)
        else None
    )
    if isinstance(schema, str) and name in outer:
        return True
    if name is None:
        return any(_is_inside(one, named, outer, done) for one in _parts(schema, named))
    if name in done:
        return False
    inside = outer if isinstance(schema, str) else outer | {name}
    if any(_is_inside(one, named, inside, done) for one in _parts(schema, named)):
        return True
    done.add(name)
    return False


def _is_weightless(schema: Any, named: Types, outer: frozenset[str]) -> bool:
    if isinstance(schema, str):
        if schema not in named:
            return schema == "null"
        return schema in outer or _is_weightless(named[schema], named, outer | {schema})
    if isinstance(schema, list):
        # Which of its types it is takes a byte.
        return False
    kind = schema["type"]
    if kind in ("record", "error"):
        return all(_is_weightless(one, named, outer) for one in _parts(schema, named))
    if kind == "fixed":
        return not schema["size"]
    return kind not in ("array", "map", "enum") and _is_weightless(kind, named, outer)


def _parts(schema: Any, named: Types) -> Iterator[Any]:
    """The schemas that stand in one."""
    if isinstance(schema, str):
        if schema in named:
            yield named[schema]
    elif isinstance(schema, list):
        yield from schema
    elif schema["type"] in ("record", "error"):
        yield from (field["type"] for field in schema["fields"])
    elif schema["type"] in ("array", "map"):
        yield schema["items" if schema["type"] == "array" else "values"]
    elif schema["type"] not in ("enum", "fixed"):
        yield schema["type"]
