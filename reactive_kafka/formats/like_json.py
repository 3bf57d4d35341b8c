"""Reads the plain data of other formats as pydantic would read the same data in JSON.

JSON has only text for UUIDs, times, members of an enum and decimals, and only lists for tuples and
sets. So when pydantic reads JSON it accepts text for these even in strict models, and in a union
such as ``UUID | str`` it looks into the text. When it reads Python objects, which Avro and Protobuf
yield, text is only text. This module compiles a second validator from the same core schema. Where
it makes a difference, that one reads values as JSON. Values that JSON cannot express, such as bytes
and times, are read as Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from pydantic_core import SchemaValidator, to_json

Schema = Mapping[str, Any]
Config = Mapping[str, Any] | None

_SCALARS = (str, int, float, bool)
_TEXTS = frozenset(
    {
        "bytes",
        "complex",
        "date",
        "datetime",
        "decimal",
        "enum",
        "multi-host-url",
        "time",
        "timedelta",
        "url",
        "uuid",
    }
)
"""Kinds that are text, or numbers, in JSON."""

_SEVERAL_WAYS = frozenset({"json-or-python", "lax-or-strict"})
"""Kinds that define themselves what strict models accept: network addresses and paths."""

_LOOKED_INTO = _TEXTS | _SEVERAL_WAYS | {"definition-ref"}

_FROM_OTHERS = frozenset({"dataclass", "deque", "frozenset", "model", "set", "tuple"})
"""Kinds that are lists and objects in JSON. A strict model accepts only instances of the class."""

_PARTS = (
    "schema",
    "items_schema",
    "keys_schema",
    "values_schema",
    "extras_schema",
    "choices",
    "fields",
    "steps",
    "definitions",
)
"""The keys of a core schema that have other schemas: one, or several in a list or a dict."""


def reader_like_json(schema: Schema) -> Callable[[Any], object] | None:
    """Return what reads plain data into a type as the same JSON is read.

    Args:
        schema: The core schema of the type.

    Returns:
        None if pydantic reads Python objects of this type just like JSON. For most types that are
        not strict it does.
    """
    rewritten = _Rewriter(schema).rewritten(schema, None)
    if rewritten is schema:
        return None
    return _compiled(rewritten, None).validate_python


def _compiled(schema: Any, config: Any) -> SchemaValidator:
    try:
        # With prebuilt validators a model would use its own one, without our changes.
        return SchemaValidator(schema, config, _use_prebuilt=False)
    except TypeError:
        # Older versions of pydantic do not have this parameter.
        return SchemaValidator(schema, config)


class _Rewriter:
    """Rewrites the parts of one core schema."""

    def __init__(self, whole: Schema) -> None:
        self._definitions = list(whole.get("definitions", ()))

    def rewritten(self, schema: Schema, config: Config) -> Schema:
        """Return the schema that reads plain data; the same object if nothing has to change.

        Args:
            schema: A schema of any kind.
            config: The configuration of the model around it, which may be strict.
        """
        kind = schema["type"]
        inner_config = schema.get("config", config)
        # A dataclass obeys its own configuration; every other kind obeys the one around it.
        is_strict = _is_strict(schema, inner_config if kind == "dataclass" else config)
        new = self._with_new_parts(schema, inner_config)
        if kind == "union" and _looks_into_text(schema):
            return self._read_as_json(schema, new, config, has_json_form)
        if kind == "model" and new is not schema and schema.get("custom_init"):
            # The model's own __init__ calls the validator of the class, not this one.
            return self._read_as_json(schema, new, config, has_json_form)
        if kind == "dict" and "keys_schema" in schema:
            key = schema["keys_schema"]
            if is_strict or _is_strict(key, config):
                return {**new, "keys_schema": self._key(key, config)}
            return new
        if not is_strict:
            return new
        if kind in _TEXTS or _has_members(schema):
            return self._read_as_json(schema, new, config, _is_scalar)
        if kind in _SEVERAL_WAYS:
            return self._read_as_json(schema, new, config, has_json_form)
        if kind in _FROM_OTHERS and (kind != "model" or schema.get("strict")):
            return {**new, "strict": False}
        return new

    def _with_new_parts(self, schema: Schema, config: Config) -> Schema:
        parts = {name: self._part(schema[name], config) for name in _PARTS if name in schema}
        if all(part is schema[name] for name, part in parts.items()):
            return schema
        return {**schema, **parts}

    def _part(self, part: Any, config: Config) -> Any:
        if isinstance(part, Mapping):
            if isinstance(part.get("type"), str):
                return self.rewritten(part, config)
            new: Any = {name: self._part(inner, config) for name, inner in part.items()}
            is_same = all(new[name] is inner for name, inner in part.items())
            return part if is_same else new
        if isinstance(part, list | tuple):
            items = [self._part(inner, config) for inner in part]
            is_same = all(item is inner for item, inner in zip(items, part, strict=True))
            return part if is_same else type(part)(items)
        return part

    def _read_as_json(
        self, schema: Schema, new: Schema, config: Config, accepts: Callable[[Any], bool]
    ) -> dict[str, Any]:
        """Return a schema that reads values as JSON if it *accepts* them, and others by *new*."""
        validate = self._json_validator(schema, config)

        def read(value: Any, handler: Callable[[Any], Any]) -> Any:
            if accepts(value):
                return validate(to_json(value, inf_nan_mode="constants"))
            return handler(value)

        return _wrapped(new, read)

    def _key(self, schema: Schema, config: Config) -> Schema:
        """Return the schema of a dict's keys, which are text in JSON.

        Strict models, too, read numbers from that text.
        """
        if schema["type"] in ("any", "str"):
            return schema
        validate = self._json_validator({"type": "dict", "keys_schema": schema}, config)

        def read(value: Any, handler: Callable[[Any], Any]) -> Any:
            if type(value) is str:
                return next(iter(validate(to_json({value: None}))))
            return handler(value)

        return _wrapped(schema, read)

    def _json_validator(self, schema: Schema, config: Config) -> Callable[[bytes], Any]:
        whole: Schema = {name: value for name, value in schema.items() if name != "ref"}
        if self._definitions and schema["type"] not in _TEXTS:
            whole = {"type": "definitions", "schema": whole, "definitions": self._definitions}
        validator = SchemaValidator(whole, config)  # type: ignore[arg-type]
        return validator.validate_json


def _wrapped(schema: Schema, read: Callable[[Any, Callable[[Any], Any]], Any]) -> dict[str, Any]:
    """Return a schema that calls *read* with a value, and with what reads it by *schema*."""
    wrapped = {
        "type": "function-wrap",
        "function": {"type": "no-info", "function": read},
        "schema": {name: value for name, value in schema.items() if name != "ref"},
    }
    if "ref" in schema:
        # References have to lead to the wrapper.
        wrapped["ref"] = schema["ref"]
    return wrapped


def has_json_form(value: Any) -> bool:
    """Return whether JSON can express the value exactly."""
    if isinstance(value, dict):
        return all(type(key) is str and has_json_form(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(has_json_form, value))
    return value is None or type(value) in _SCALARS


def _is_scalar(value: Any) -> bool:
    return type(value) in _SCALARS


def _is_strict(schema: Schema, config: Config) -> bool:
    return bool(schema.get("strict", (config or {}).get("strict", False)))


def _has_members(schema: Schema) -> bool:
    """Return whether it is a Literal of members of an enum."""
    if schema["type"] != "literal":
        return False
    return any(isinstance(expected, Enum) for expected in schema.get("expected", ()))


def _looks_into_text(union: Schema) -> bool:
    """Return whether a part of a union reads text as something else, or is strict."""
    todo: list[Any] = [union["choices"]]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            kind = part.get("type")
            if isinstance(kind, str) and (
                kind in _LOOKED_INTO or part.get("strict") is True or _has_members(part)
            ):
                return True
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part
    return False
