"""Plain data of other formats, read as the same data in JSON would be.

Text is all that JSON has for UUIDs, times, members of an enum and decimals, and a list all that it
has for tuples and sets. So pydantic takes text for these in JSON even in strict models, and in a
union such as ``UUID | str`` it looks into the text. Where it reads objects of Python, which Avro
and Protobuf yield, text is nothing but text. Here a second validator is compiled of the same core
schema: at the positions where that matters, what JSON has a form for is read as JSON. What JSON has
no form for, as bytes and times, is read as the object that it is.
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
"""Kinds that are text, or a number, in JSON."""

_SEVERAL_WAYS = frozenset({"json-or-python", "lax-or-strict"})
"""Kinds that say themselves what strict models take: addresses of networks and paths."""

_LOOKED_INTO = _TEXTS | _SEVERAL_WAYS | {"definition-ref"}

_FROM_OTHERS = frozenset({"dataclass", "deque", "frozenset", "model", "set", "tuple"})
"""Kinds that are lists and objects in JSON, and of which a strict model takes instances only."""

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
"""Where a core schema has other ones: one, or several in a list or a dict."""


def reader_like_json(schema: Schema) -> Callable[[Any], object] | None:
    """What reads plain data into a type, given by its core schema, as the same JSON is read.

    None: pydantic's own reading of Python's objects does that. It does for most types that are not
    strict.
    """
    made = _Rewriter(schema).rewritten(schema, None)
    return None if made is schema else _compiled(made, None).validate_python


def _compiled(schema: Any, config: Any) -> SchemaValidator:
    try:
        # Without this a model uses its own validator, which does not have our changes.
        return SchemaValidator(schema, config, _use_prebuilt=False)
    except TypeError:
        # Of a pydantic that has no such parameter.
        return SchemaValidator(schema, config)


class _Rewriter:
    """Rewrites the parts of one core schema."""

    def __init__(self, whole: Schema) -> None:
        self._definitions = list(whole.get("definitions", ()))

    def rewritten(self, schema: Schema, config: Config) -> Schema:
        """The schema that reads plain data; the same object if nothing has to change.

        Args:
            schema: Of any kind.
            config: That of the model around it, which says whether it is strict.
        """
        kind = schema["type"]
        inner = schema.get("config", config)
        is_strict = _is_strict(schema, inner if kind == "dataclass" else config)
        made = self._with_new_parts(schema, inner)
        if kind == "union" and _looks_into_text(schema):
            return self._read_as_json(schema, made, config, has_json_form)
        if kind == "model" and made is not schema and schema.get("custom_init"):
            # Its __init__ calls the validator of the class, not this one.
            return self._read_as_json(schema, made, config, has_json_form)
        if not is_strict:
            return made
        if kind in _TEXTS or _has_members(schema):
            return self._read_as_json(schema, made, config, _is_scalar)
        if kind in _SEVERAL_WAYS:
            return self._read_as_json(schema, made, config, has_json_form)
        if kind in _FROM_OTHERS and (kind != "model" or schema.get("strict")):
            return {**made, "strict": False}
        if kind == "dict" and "keys_schema" in schema:
            return {**made, "keys_schema": self._key(schema["keys_schema"], config)}
        return made

    def _with_new_parts(self, schema: Schema, config: Config) -> Schema:
        parts = {name: self._part(schema[name], config) for name in _PARTS if name in schema}
        if all(part is schema[name] for name, part in parts.items()):
            return schema
        return {**schema, **parts}

    def _part(self, part: Any, config: Config) -> Any:
        if isinstance(part, Mapping):
            if isinstance(part.get("type"), str):
                return self.rewritten(part, config)
            made: Any = {name: self._part(one, config) for name, one in part.items()}
            return part if all(made[name] is one for name, one in part.items()) else made
        if isinstance(part, list | tuple):
            items = [self._part(one, config) for one in part]
            is_same = all(new is old for new, old in zip(items, part, strict=True))
            return part if is_same else type(part)(items)
        return part

    def _read_as_json(
        self, schema: Schema, made: Schema, config: Config, takes: Callable[[Any], bool]
    ) -> dict[str, Any]:
        """What reads a value as JSON if it *takes* that, else by *made*."""
        validate = self._json_validator(schema, config)

        def read(value: Any, handler: Callable[[Any], Any]) -> Any:
            return (
                validate(to_json(value, inf_nan_mode="constants"))
                if takes(value)
                else handler(value)
            )

        return _wrapped(made, read)

    def _key(self, schema: Schema, config: Config) -> Schema:
        """Keys of an object are text: strict models, too, read numbers from that."""
        if schema["type"] in ("any", "str"):
            return schema
        validate = self._json_validator({"type": "dict", "keys_schema": schema}, config)

        def read(value: Any, handler: Callable[[Any], Any]) -> Any:
            return (
                next(iter(validate(to_json({value: None}))))
                if type(value) is str
                else handler(value)
            )

        return _wrapped(schema, read)

    def _json_validator(self, schema: Schema, config: Config) -> Callable[[bytes], Any]:
        whole: Schema = {name: value for name, value in schema.items() if name != "ref"}
        if self._definitions and schema["type"] not in _TEXTS:
            whole = {"type": "definitions", "schema": whole, "definitions": self._definitions}
        validate: Callable[[bytes], Any] = SchemaValidator(whole, config).validate_json  # type: ignore[arg-type]
        return validate


def _wrapped(schema: Schema, read: Callable[[Any, Callable[[Any], Any]], Any]) -> dict[str, Any]:
    inner = {name: value for name, value in schema.items() if name != "ref"}
    made = {
        "type": "function-wrap",
        "function": {"type": "no-info", "function": read},
        "schema": inner,
    }
    return {**made, "ref": schema["ref"]} if "ref" in schema else made


def has_json_form(value: Any) -> bool:
    """Whether JSON can say the value as it is."""
    if isinstance(value, dict):
        return all(type(key) is str and has_json_form(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(has_json_form, value))
    return value is None or type(value) in _SCALARS


def _is_scalar(value: Any) -> bool:
    return type(value) in _SCALARS


def _is_strict(schema: Schema, config: Config) -> bool:
    return bool(schema.get("strict", (config or {}).get("strict", False)))


def _has_members(schema: Schema) -> bool:
    """Whether it is a Literal of members of an enum."""
    return schema["type"] == "literal" and any(
        isinstance(one, Enum) for one in schema.get("expected", ())
    )


def _looks_into_text(union: Schema) -> bool:
    """Whether text is read as something else, or something is strict, anywhere in a union."""
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
