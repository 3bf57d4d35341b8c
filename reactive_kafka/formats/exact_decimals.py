"""Reads Decimals from numbers in JSON exactly, without a double in between.

Pydantic reads a number with a fraction or an exponent as a double, and makes the Decimal from that:
``12345678901234567.89`` becomes 12345678901234568. It reads a string exactly. So a number that a
double does not hold is put into quotes before pydantic reads the record, if the type asks for a
Decimal there. Nothing else of the text changes. Types without a Decimal are known at the start, and
cost nothing. Records without such a number are only searched for one.

A number stays unquoted where quotes would change more than its digits: if a validator sees it
before it is read (``mode="before"``, "wrap" and "plain", or the model's own ``__init__``), and in a
union that would read the string as something else, such as ``str | Decimal``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic_core import SchemaValidator, ValidationError

from reactive_kafka.formats.guarded_decoder import Read

Schema = Mapping[str, Any]


def _shape(byte: int) -> int:
    """Return one byte for each group of bytes.

    The groups are: digits and the point, the letter of an exponent, a sign, what comes before a
    value, and the rest.
    """
    character = chr(byte)
    if character in "0123456789.":
        return ord("0")
    if character in "eE":
        return ord("e")
    if character == "-":
        return ord("-")
    if character in "[:, \t\r\n":
        return ord(":")
    return ord("x")


_SHAPES = bytes(_shape(byte) for byte in range(256))
# A double holds any number of 15 digits. The point, and the zero before it, may come on top.
_LONG = b"0" * 17
_STRING_OR_NUMBER = re.compile(
    r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL
)
_INNER = frozenset(
    {"custom-error", "default", "definitions", "function-after", "model", "dataclass", "nullable"}
)
"""Kinds whose JSON is that of their inner schema."""

_FIELDS = frozenset({"dataclass-args", "model-fields", "typed-dict"})
_ITEMS = frozenset({"deque", "frozenset", "generator", "list", "set"})
_NOTHING = object()
_Part = tuple[Any, Schema, Schema]
"""A value, its core schema, and the configuration of the model around it."""


class _Number(float):
    """A number with a fraction or an exponent.

    Attributes:
        index: Its number among these numbers of the document.
        text: The number as it is written.
        is_exact: A double holds it.
    """

    index: int
    text: str
    is_exact: bool


def exactly(read: Read, schema: Schema) -> Read:
    """Return a reader like *read* that reads Decimals exactly.

    Args:
        read: Reads JSON.
        schema: The core schema of the type that it reads.

    Returns:
        *read* itself if the type has no Decimals.
    """
    if not _has_decimal(schema):
        return read
    decimals = _DecimalFinder(schema)

    def read_exactly(value: bytes) -> object:
        if is_suspect(value):
            return read(decimals.quoted(value))
        return read(value)

    return read_exactly


def is_suspect(value: bytes) -> bool:
    """Return whether JSON may have a number that a double does not hold.

    It is fast. If it returns True there may be no such number, but it misses none.
    """
    shape = value.translate(_SHAPES)
    if _LONG in shape:
        return True
    # A digit and an exponent.
    found = shape.find(b"0e")
    while found >= 0:
        # The digits before it, fewer than 17, are a number if a value begins there. Otherwise they
        # are text, as in a UUID.
        before = shape[max(found - len(_LONG), 0) : found + 1].rstrip(b"0").removesuffix(b"-")
        if not before or before.endswith(b":"):
            return True
        found = shape.find(b"0e", found + 1)
    return False


def _has_decimal(schema: Any) -> bool:
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            if part.get("type") == "decimal":
                return True
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part
    return False


class _DecimalFinder:
    """Finds the numbers in a document that a core schema reads as Decimals."""

    def __init__(self, whole: Schema) -> None:
        self._whole = whole
        self._definitions: dict[str, Schema] = {
            definition["ref"]: definition for definition in whole.get("definitions", ())
        }
        # By the id() of a union's schema.
        self._choosers: dict[int, SchemaValidator] = {}

    def quoted(self, value: bytes) -> bytes:
        """Return the JSON with quotes around the Decimals that a double does not hold."""
        numbers: list[_Number] = []

        def number(text: str) -> _Number:
            made = _Number(text)
            made.index = len(numbers)
            made.text = text
            made.is_exact = _is_exact(text)
            numbers.append(made)
            return made

        try:
            text = value.decode()
            document = json.loads(text, parse_float=number)
        except (ValueError, RecursionError):
            # It is not JSON. Pydantic's parser says why.
            return value
        if all(number.is_exact for number in numbers):
            return value
        indexes = set(self._found(document, self._whole, {}))
        if not indexes:
            return value
        return _with_quotes(text, indexes).encode()

    def _found(self, value: Any, schema: Schema, config: Schema) -> Iterator[int]:
        """Yield the indexes of the numbers in a value that have to be quoted.

        Only unions are read recursively, because pydantic reads what Python's stack cannot hold.
        """
        todo: list[_Part] = [(value, schema, config)]
        while todo:
            value, schema, config = todo.pop()
            kind = schema["type"]
            config = schema.get("config", config)
            if kind == "decimal":
                if isinstance(value, _Number) and not value.is_exact:
                    yield value.index
            elif kind == "tagged-union":
                yield from self._found_in_tagged_union(value, schema, config)
            elif kind == "union":
                yield from self._found_in_union(value, schema, config)
            else:
                todo += self._parts(value, schema, config)

    def _parts(self, value: Any, schema: Schema, config: Schema) -> Iterator[_Part]:
        """Yield the parts of a value, each with its schema."""
        kind = schema["type"]
        if kind == "definition-ref":
            yield value, self._definitions[schema["schema_ref"]], config
        elif kind in _INNER:
            if not schema.get("custom_init"):
                yield value, schema["schema"], config
        elif kind == "json-or-python":
            yield value, schema["json_schema"], config
        elif kind in _FIELDS:
            yield from self._fields(value, schema, config)
        elif kind in _ITEMS and isinstance(value, list):
            for item in value:
                yield item, schema.get("items_schema", _ANY), config
        elif kind == "tuple" and isinstance(value, list):
            for item, item_schema in zip(value, _items_of(schema, len(value)), strict=False):
                yield item, item_schema, config
        elif kind == "dict" and isinstance(value, dict):
            for item in value.values():
                yield item, schema.get("values_schema", _ANY), config

    def _fields(self, value: Any, schema: Schema, config: Schema) -> Iterator[_Part]:
        if not isinstance(value, dict):
            return
        fields = schema["fields"]
        if not isinstance(fields, Mapping):
            fields = {field["name"]: field for field in fields}
        paths_by_field = {name: _paths_of(name, field, config) for name, field in fields.items()}
        keys = [key for paths in paths_by_field.values() for key in {path[0] for path in paths}]
        for name, field in fields.items():
            for path in paths_by_field[name]:
                part = _part_at(value, path)
                if part is _NOTHING:
                    continue
                # A key that several fields read is left alone: quotes would have to suit them all.
                if keys.count(path[0]) == 1:
                    yield part, field["schema"], config
                break

    def _found_in_tagged_union(self, value: Any, schema: Schema, config: Schema) -> Iterator[int]:
        choice = _tagged(value, schema)
        if choice is None:
            return
        found = set(self._found(value, choice, config))
        # The discriminator may be a function of the user, which may look at any number.
        if found and _tagged(_with_texts(value, found), schema) is choice:
            yield from found

    def _found_in_union(self, value: Any, schema: Schema, config: Schema) -> Iterator[int]:
        """Yield the numbers in the member that pydantic chooses.

        It has to choose the same member when they are quoted. Otherwise nothing is quoted.
        """
        index = self._choice(value, schema, config)
        if index is None:
            return
        found = set(self._found(value, _choices_of(schema)[index], config))
        if found and self._choice(_with_texts(value, found), schema, config) == index:
            yield from found

    def _choice(self, value: Any, schema: Schema, config: Schema) -> int | None:
        """Return the index of the union's member that pydantic chooses for a value."""
        chooser = self._choosers.get(id(schema))
        if chooser is None:
            chooser = _chooser(schema, config, [*self._definitions.values()])
            self._choosers[id(schema)] = chooser
        try:
            index: int = chooser.validate_json(json.dumps(value))[0]
        except (ValidationError, ValueError, RecursionError):
            return None
        return index


_ANY: Schema = {"type": "any"}


def _is_exact(text: str) -> bool:
    try:
        return Decimal(text) == Decimal(repr(float(text)))
    except ArithmeticError:
        # Its exponent is also beyond those of a Decimal, so quotes would not help.
        return True


def _chooser(schema: Schema, config: Schema, definitions: list[Schema]) -> SchemaValidator:
    """Return a validator that says which member of a union pydantic chooses.

    It returns a pair of the member's index and the value.
    """

    def with_index(index: int, choice: Schema) -> Schema:
        function = {"type": "no-info", "function": lambda value: (index, value)}
        return {"type": "function-after", "function": function, "schema": choice}

    union: Any = {name: value for name, value in schema.items() if name != "ref"}
    union["choices"] = [
        with_index(index, choice) for index, choice in enumerate(_choices_of(schema))
    ]
    if definitions:
        union = {"type": "definitions", "schema": union, "definitions": definitions}
    return SchemaValidator(union, config)  # type: ignore[arg-type]


def _choices_of(schema: Schema) -> list[Schema]:
    # A choice may be a pair of the schema and a label.
    return [choice if isinstance(choice, Mapping) else choice[0] for choice in schema["choices"]]


def _items_of(schema: Schema, length: int) -> list[Schema]:
    """Return the schema of each item of a tuple."""
    items: list[Schema] = list(schema["items_schema"])
    repeated = schema.get("variadic_item_index")
    if repeated is None:
        return items
    count = length - len(items) + 1
    return items[:repeated] + [items[repeated]] * count + items[repeated + 1 :]


def _paths_of(name: str, field: Schema, config: Schema) -> list[list[Any]]:
    """Return where pydantic looks for the value of a field, in its order."""
    alias = field.get("validation_alias")
    if alias is None:
        return [[name]]
    by_name = config.get("validate_by_name", config.get("populate_by_name", False))
    paths = _as_paths(alias) if config.get("validate_by_alias", True) else []
    if by_name or not paths:
        return [*paths, [name]]
    return paths


def _as_paths(alias: Any) -> list[list[Any]]:
    """Return an alias as paths. It may be a key, a path, or several paths."""
    if isinstance(alias, str):
        return [[alias]]
    if alias and isinstance(alias[0], list):
        return alias  # type: ignore[no-any-return]
    return [alias]


def _part_at(value: Any, path: list[Any]) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return _NOTHING
    return value


def _tagged(value: Any, schema: Schema) -> Schema | None:
    """Return the member of a union that its discriminator chooses; None: it chooses none."""
    discriminator = schema["discriminator"]
    if callable(discriminator):
        try:
            tag = discriminator(value)
        except Exception:
            # The function is the user's. When the record is read it raises the same again.
            return None
    else:
        tags = [_part_at(value, path) for path in _as_paths(discriminator)]
        tag = next((tag for tag in tags if tag is not _NOTHING), None)
    for name, choice in schema["choices"].items():
        if name == tag or getattr(name, "value", _NOTHING) == tag:
            return choice if isinstance(choice, Mapping) else None
    return None


def _with_texts(value: Any, indexes: set[int]) -> Any:
    """Return a value with the numbers of these indexes as text."""
    if isinstance(value, _Number):
        return value.text if value.index in indexes else value
    if isinstance(value, dict):
        return {key: _with_texts(item, indexes) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item, indexes) for item in value]
    return value


def _with_quotes(text: str, indexes: set[int]) -> str:
    """Return JSON with quotes around the numbers of these indexes."""
    index = -1

    def quote(match: re.Match[str]) -> str:
        nonlocal index
        token = match[0]
        # Strings and integers have no index.
        if token[0] == '"' or token.lstrip("-").isdigit():
            return token
        index += 1
        return f'"{token}"' if index in indexes else token

    return _STRING_OR_NUMBER.sub(quote, text)
