"""Decimals from numbers of JSON, without the double in between.

pydantic reads a number with a fraction or an exponent as a double, and makes the Decimal of that:
of ``12345678901234567.89`` it keeps 12345678901234568. A string it reads exactly. So where a record
has a number that a double does not hold, and that stands where a Decimal is asked for, the number
is put into quotes before pydantic reads the record. Nothing else of the text changes. Whether a
type asks for a Decimal is known at the start, and records without such a number are only searched
for one.

A number is left as it is where quotes would change more than its digits: behind validators that see
it before it is read (``mode="before"``, "wrap" and "plain", or an ``__init__`` of the model's own),
and in a union that would take the string for something else, such as ``str | Decimal``.
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
    """One byte for each group: digits and the point, an exponent's letter, a sign, what precedes a
    value, the rest.
    """
    character = chr(byte)
    if character in "0123456789.":
        return ord("0")
    if character in "eE":
        return ord("e")
    if character == "-":
        return ord("-")
    return ord(":") if character in "[:, \t\r\n" else ord("x")


_SHAPES = bytes(_shape(byte) for byte in range(256))
# A double holds 15 digits of any number.
_LONG = b"0" * 17
_STRING_OR_NUMBER = re.compile(
    r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL
)
_INNER = frozenset(
    {"custom-error", "default", "definitions", "function-after", "model", "dataclass", "nullable"}
)
"""Kinds whose value is that of their inner schema, as far as JSON is concerned."""

_FIELDS = frozenset({"dataclass-args", "model-fields", "typed-dict"})
_ITEMS = frozenset({"deque", "frozenset", "generator", "list", "set"})
_NOTHING = object()


class _Number(float):
    """A number with a fraction or an exponent, which one of the document's it is, and whether a
    double holds it.
    """

    index: int
    text: str
    is_exact: bool


def exactly(read: Read, schema: Schema) -> Read:
    """*read*, which reads JSON into the type of a core schema, with the Decimals in it exact.

    The same function if the type has none.
    """
    if not _has_decimal(schema):
        return read
    places = _Places(schema)

    def read_exactly(value: bytes) -> object:
        return read(places.quoted(value)) if is_suspect(value) else read(value)

    return read_exactly


def is_suspect(value: bytes) -> bool:
    """Whether JSON may have a number that a double does not hold; quick, and not always right when
    it says so.
    """
    shape = value.translate(_SHAPES)
    if _LONG in shape:
        return True
    at = shape.find(b"0e")
    while at >= 0:
        # Fewer than 17 digits at the start of a value. Elsewhere they are text, as in a UUID.
        before = shape[max(at - len(_LONG), 0) : at + 1].rstrip(b"0").removesuffix(b"-")
        if not before or before.endswith(b":"):
            return True
        at = shape.find(b"0e", at + 1)
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


class _Places:
    """Finds where a document has the Decimals that a core schema asks for."""

    def __init__(self, whole: Schema) -> None:
        self._whole = whole
        self._definitions: dict[str, Schema] = {
            one["ref"]: one for one in whole.get("definitions", ())
        }
        self._probes: dict[int, SchemaValidator] = {}

    def quoted(self, value: bytes) -> bytes:
        """The same JSON, with quotes around the numbers that are to be Decimals and that no double
        holds.
        """
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
            # pydantic's parser says why it is no JSON.
            return value
        if all(one.is_exact for one in numbers):
            return value
        found = set(self._found(document, self._whole, {}))
        return _with_quotes(text, found).encode() if found else value

    def _found(self, value: Any, schema: Schema, config: Schema) -> Iterator[int]:
        """Which numbers of a value are to be quoted."""
        kind = schema["type"]
        config = schema.get("config", config)
        if kind == "decimal":
            if isinstance(value, _Number) and not value.is_exact:
                yield value.index
        elif kind == "definition-ref":
            yield from self._found(value, self._definitions[schema["schema_ref"]], config)
        elif kind in _INNER:
            if not schema.get("custom_init"):
                yield from self._found(value, schema["schema"], config)
        elif kind == "json-or-python":
            yield from self._found(value, schema["json_schema"], config)
        elif kind in _FIELDS:
            yield from self._found_in_fields(value, schema, config)
        elif kind in _ITEMS and isinstance(value, list):
            for one in value:
                yield from self._found(one, schema.get("items_schema", _ANY), config)
        elif kind == "tuple" and isinstance(value, list):
            for one, item in zip(value, _items_of(schema, len(value)), strict=False):
                yield from self._found(one, item, config)
        elif kind == "dict" and isinstance(value, dict):
            for one in value.values():
                yield from self._found(one, schema.get("values_schema", _ANY), config)
        elif kind == "tagged-union":
            choice = _tagged(value, schema)
            found = set() if choice is None else set(self._found(value, choice, config))
            # A function of the user's may look at anything.
            if found and _tagged(_with_texts(value, found), schema) is choice:
                yield from found
        elif kind == "union":
            yield from self._found_in_union(value, schema, config)

    def _found_in_fields(self, value: Any, schema: Schema, config: Schema) -> Iterator[int]:
        if not isinstance(value, dict):
            return
        fields = schema["fields"]
        named = (
            fields.items()
            if isinstance(fields, Mapping)
            else [(one["name"], one) for one in fields]
        )
        paths = {name: _paths_of(name, field, config) for name, field in named}
        keys = [key for each in paths.values() for key in {path[0] for path in each}]
        for name, field in named:
            for path in paths[name]:
                part = _at(value, path)
                if part is not _NOTHING:
                    # What two fields read has to suit both.
                    if keys.count(path[0]) == 1:
                        yield from self._found(part, field["schema"], config)
                    break

    def _found_in_union(self, value: Any, schema: Schema, config: Schema) -> Iterator[int]:
        """The numbers in the member that pydantic chooses, if it chooses the same one when they are
        quoted.
        """
        chosen = self._choice(value, schema, config)
        if chosen is None:
            return
        found = set(self._found(value, _choices_of(schema)[chosen], config))
        if found and self._choice(_with_texts(value, found), schema, config) == chosen:
            yield from found

    def _choice(self, value: Any, schema: Schema, config: Schema) -> int | None:
        probe = self._probes.get(id(schema))
        if probe is None:
            probe = self._probes[id(schema)] = _probe(schema, config, [*self._definitions.values()])
        try:
            chosen: int = probe.validate_json(json.dumps(value))[0]
        except (ValidationError, ValueError, RecursionError):
            return None
        return chosen


_ANY: Schema = {"type": "any"}


def _is_exact(text: str) -> bool:
    try:
        return Decimal(text) == Decimal(repr(float(text)))
    except ArithmeticError:
        # Its exponent is beyond what a Decimal can have, too.
        return True


def _probe(schema: Schema, config: Schema, definitions: list[Schema]) -> SchemaValidator:
    """What tells which choice of a union pydantic makes."""

    def naming(number: int, choice: Schema) -> Schema:
        function = {"type": "no-info", "function": lambda found: (number, found)}
        return {"type": "function-after", "function": function, "schema": choice}

    choices = [naming(number, choice) for number, choice in enumerate(_choices_of(schema))]
    union: Any = {
        **{name: one for name, one in schema.items() if name != "ref"},
        "choices": choices,
    }
    whole = (
        {"type": "definitions", "schema": union, "definitions": definitions}
        if definitions
        else union
    )
    return SchemaValidator(whole, config)  # type: ignore[arg-type]


def _choices_of(schema: Schema) -> list[Schema]:
    return [one if isinstance(one, Mapping) else one[0] for one in schema["choices"]]


def _items_of(schema: Schema, length: int) -> list[Schema]:
    """The schema of each item of a tuple."""
    items: list[Schema] = list(schema["items_schema"])
    many = schema.get("variadic_item_index")
    if many is None:
        return items
    return items[:many] + items[many : many + 1] * (length - len(items) + 1) + items[many + 1 :]


def _paths_of(name: str, field: Schema, config: Schema) -> list[list[Any]]:
    """Where the value of a field may stand, in the order in which pydantic looks."""
    alias = field.get("validation_alias")
    if alias is None:
        return [[name]]
    by_name = config.get("validate_by_name", config.get("populate_by_name", False))
    paths = _as_paths(alias) if config.get("validate_by_alias", True) else []
    return [*paths, [name]] if by_name or not paths else paths


def _as_paths(alias: Any) -> list[list[Any]]:
    if isinstance(alias, str):
        return [[alias]]
    return alias if alias and isinstance(alias[0], list) else [alias]


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return _NOTHING
    return value


def _tagged(value: Any, schema: Schema) -> Schema | None:
    """The choice that a discriminator makes; None: it makes none."""
    discriminator = schema["discriminator"]
    if callable(discriminator):
        try:
            tag = discriminator(value)
        except Exception:
            # The user's; reading the record raises it again.
            return None
    else:
        found = [_at(value, path) for path in _as_paths(discriminator)]
        tag = next((one for one in found if one is not _NOTHING), None)
    for name, choice in schema["choices"].items():
        if name == tag or getattr(name, "value", _NOTHING) == tag:
            return choice if isinstance(choice, Mapping) else None
    return None


def _with_texts(value: Any, found: set[int]) -> Any:
    """A value with these of its numbers as text."""
    if isinstance(value, _Number):
        return value.text if value.index in found else value
    if isinstance(value, dict):
        return {key: _with_texts(one, found) for key, one in value.items()}
    return [_with_texts(one, found) for one in value] if isinstance(value, list) else value


def _with_quotes(text: str, found: set[int]) -> str:
    """JSON with quotes around these of its numbers with a fraction or an exponent."""
    index = -1

    def quote(match: re.Match[str]) -> str:
        nonlocal index
        token = match[0]
        if token[0] == '"' or token.lstrip("-").isdigit():
            return token
        index += 1
        return f'"{token}"' if index in found else token

    return _STRING_OR_NUMBER.sub(quote, text)
