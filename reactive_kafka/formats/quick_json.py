"""Reads JSON by msgspec, if it is installed, wherever the result is the same as with pydantic.

Pydantic's parser, which is always installed, defines what JSON means. Msgspec is faster and
stricter: with the types that :func:`reads_alike` knows and the documents that :func:`is_sure`
knows, it accepts nothing that pydantic would refuse or read as another value. What it refuses is
read again by pydantic, which may accept it (``NaN``, ``"1"`` for a number) or explains what is
wrong. So a record is the same value, or the same error, with and without msgspec.

Orjson is not used. It makes floats of integers beyond 64 bits, and a document does not show that
beforehand.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, TypeVar

from pydantic_core import from_json

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.guarded_decoder import Decoder, Read

Schema = Mapping[str, Any]
R = TypeVar("R", Read, Decoder)

# So many bytes cannot be nested too deeply, nor hold an integer with too many digits.
_SHALLOW_BYTES = 400
# How deep arrays and objects may be nested. Pydantic's parser accepts 201 levels.
_DEPTH = 200
# An integer of more than 4,300 digits has at least ten digits among every 430th byte.
_STRIDE = 430
_DIGITS = re.compile(rb"[0-9]{10}")

_ABSENT = object()
# Kinds that both read alike if they have no constraints.
_FREE = ("any", "bool", "date", "float", "int", "str", "uuid")
# Kinds that a document itself tells apart in a union.
_TELLABLE = ("bool", "float", "int", "str")
# Keys of a core schema that do not change what is read.
_ALWAYS = {"type", "metadata", "ref"}


def parsed(value: bytes) -> Any:
    """Return the document. ``NaN`` and ``Infinity`` are allowed, because Python's json writes them.

    Raises:
        DecodeError: It is not JSON.
    """
    try:
        return from_json(value)
    except ValueError as error:
        # The parser names the problem, line and column, and quotes nothing.
        problem = f"not valid JSON: {error}"
    raise DecodeError(problem)


def is_sure(value: bytes) -> bool:
    """Return whether msgspec is sure to refuse *value* if pydantic's parser does.

    In fields that the type does not have, msgspec does not check three things: how deep they are
    nested, whether text is UTF-8, and whether an integer has more than 4,300 digits.
    """
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    # Each level takes two bytes.
    if len(value) <= _SHALLOW_BYTES:
        return True
    if value.count(b"[") + value.count(b"{") > _DEPTH:
        return False
    return _DIGITS.search(value[::_STRIDE]) is None


def quickly(quick: Read | None, careful: R) -> R:
    """Return a reader that tries *quick* first, where the result is the same.

    Args:
        quick: Reads by msgspec; None: *careful* is returned.
        careful: Reads by pydantic. It may be a whole decoder: most records then cost only the call
            of *quick*.
    """
    if quick is None:
        return careful

    def read(value: Any) -> object:
        try:
            if (len(value) <= _SHALLOW_BYTES and value.isascii()) or is_sure(value):
                return quick(value)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            # A tombstone, which has no length, or an error of msgspec or of the user's
            # __post_init__. The careful reader reports each of them.
            pass
        return careful(value)

    return read


def quick_reader(annotation: Any, schema: Schema) -> Read | None:
    """Return msgspec's reader of a type.

    Args:
        annotation: The type.
        schema: Pydantic's core schema of it.

    Returns:
        None if msgspec is not installed, or reads the type in another way than pydantic.
    """
    inner = schema
    if schema["type"] == "nullable" and _has_only(schema, "schema"):
        inner = schema["schema"]
    defaults = _defaults_to_set(inner)
    is_alike = _is_dataclass(inner, defaults) if defaults else reads_alike(schema)
    if not is_alike:
        return None
    try:
        import msgspec
    except ImportError:
        return None
    try:
        decode = msgspec.json.Decoder(annotation).decode
    except Exception:
        # Msgspec evaluates annotations that are strings in its own way, and may fail.
        return None
    if not defaults:
        return decode
    return _with_own_defaults(decode, defaults, len(dataclasses.fields(inner["cls"])))


def _with_own_defaults(decode: Read, defaults: Mapping[str, object], fields: int) -> Read:
    """Return a reader that sets the defaults which msgspec leaves to the class.

    With pydantic the instance has them, too.

    Args:
        decode: Reads the dataclass.
        defaults: The defaults.
        fields: The number of fields of the dataclass.
    """
    items = tuple(defaults.items())

    def read(value: bytes) -> object:
        instance = decode(value)
        if instance is None:
            return None
        attributes = instance.__dict__
        if len(attributes) < fields:
            for name, default in items:
                if name not in attributes:
                    attributes[name] = default
        return instance

    return read


def struct_reader(decode: Read, convert: Read) -> Read:
    """Return a reader of structs, for which pydantic's parser decides what is JSON.

    Args:
        decode: Reads bytes by msgspec.
        convert: Reads a document by msgspec. It accepts numbers that *decode* does not.
    """

    def read(value: bytes) -> object:
        document = parsed(value)
        try:
            return decode(value)
        except ValueError:
            # The errors of msgspec are ValueErrors, and so is UnicodeDecodeError.
            pass
        return convert(document)

    return read


def reads_alike(schema: Schema) -> bool:
    """Return whether pydantic reads everything that msgspec accepts for a type as the same value.

    It is decided by pydantic's core schema of the type, against a list of what is known to be
    alike. A constraint, a validator, an alias, or a key that a later pydantic adds makes it False.
    Not on the list are times (of nanoseconds one library rounds and the other cuts off), decimals
    (0.10), bytes (base64 or text), TypedDicts (the order of keys) and pydantic's models, which
    msgspec does not know.
    """
    kind = schema["type"]
    check = _CHECKS.get(kind)
    if check is not None:
        return check(schema)
    return kind in _FREE and _has_only(schema)


def _has_only(schema: Schema, *keys: str) -> bool:
    """Return whether a core schema has no other keys than these, and those that never matter."""
    return schema.keys() <= _ALWAYS.union(keys)


def _is_container(schema: Schema) -> bool:
    return _has_only(schema, "items_schema") and reads_alike(
        schema.get("items_schema", {"type": "any"})
    )


def _is_tuple(schema: Schema) -> bool:
    return _has_only(schema, "items_schema", "variadic_item_index") and all(
        map(reads_alike, schema["items_schema"])
    )


def _is_dict(schema: Schema) -> bool:
    keys = schema.get("keys_schema", {"type": "any"})
    values = schema.get("values_schema", {"type": "any"})
    if not _has_only(schema, "keys_schema", "values_schema"):
        return False
    return keys["type"] in ("any", "str") and reads_alike(keys) and reads_alike(values)


def _is_union(schema: Schema) -> bool:
    """Return whether a document tells the members of a union apart.

    For other members pydantic chooses by a score, which msgspec does not have.
    """
    if not _has_only(schema, "choices"):
        return False
    return all(
        isinstance(choice, Mapping) and choice["type"] in _TELLABLE and _has_only(choice)
        for choice in schema["choices"]
    )


def _is_literal(schema: Schema) -> bool:
    return _has_only(schema, "expected") and all(
        type(expected) in (str, int) for expected in schema["expected"]
    )


def _is_enum(schema: Schema) -> bool:
    kinds = {type(member.value) for member in schema["members"]}
    if not _has_only(schema, "cls", "members", "sub_type"):
        return False
    # Pydantic asks _missing_() of no number beyond 64 bits with a sign, and msgspec does.
    is_strict = schema["cls"]._missing_.__func__ is Enum._missing_.__func__  # type: ignore[attr-defined]
    return kinds == {str} or (kinds == {int} and is_strict)


def _is_default(schema: Schema) -> bool:
    if not _has_only(schema, "schema", "default", "default_factory", "default_factory_takes_data"):
        return False
    return not schema.get("default_factory_takes_data") and reads_alike(schema["schema"])


def _is_nullable(schema: Schema) -> bool:
    return _has_only(schema, "schema") and reads_alike(schema["schema"])


def _is_dataclass(schema: Schema, defaults: Collection[str] = ()) -> bool:
    """Return whether both libraries make the same instances of a dataclass.

    Args:
        schema: Its core schema.
        defaults: The fields whose defaults are set after msgspec has made an instance.
    """
    kind = schema["cls"]
    arguments = schema["schema"]
    if not _has_only(schema, "cls", "config", "fields", "frozen", "post_init", "schema", "slots"):
        return False
    if not schema.get("config", {}).keys() <= {"title"}:
        return False
    if not _has_only(arguments, "collect_init_only", "computed_fields", "dataclass_name", "fields"):
        return False
    own = {field.name: field for field in dataclasses.fields(kind)}
    # They differ if the dataclass has fields with init=False.
    if {argument["name"] for argument in arguments["fields"]} != own.keys():
        return False
    if not all(_is_field(argument, own[argument["name"]]) for argument in arguments["fields"]):
        return False
    if not _left_to_class(kind).keys() <= set(defaults):
        return False
    # Msgspec reads attributes of the instance that it makes, so these methods would be called.
    if hasattr(kind, "__getattr__"):
        return False
    if any("__getattribute__" in vars(base) for base in kind.__mro__[:-1]):
        return False
    # Msgspec makes instances of abstract classes, too.
    return not inspect.isabstract(kind)


def _left_to_class(kind: type) -> dict[str, object]:
    """Return field -> the attribute of the class with its name, which mostly is its default.

    Msgspec does not set it on an instance, so that ``vars()`` of the instance misses it. A default
    with a slot, or from a factory, is set.
    """
    attributes = {}
    for field in dataclasses.fields(kind):
        value = inspect.getattr_static(kind, field.name, _ABSENT)
        if value is not _ABSENT and not isinstance(value, types.MemberDescriptorType):
            attributes[field.name] = value
    return attributes


def _defaults_to_set(schema: Schema) -> dict[str, object]:
    """Return the defaults that can be set after msgspec has made an instance of a dataclass."""
    if schema["type"] != "dataclass" or schema.get("post_init"):
        # A __post_init__ would see the instance without them.
        return {}
    defaults = {field.name: field.default for field in dataclasses.fields(schema["cls"])}
    return {
        name: value
        for name, value in _left_to_class(schema["cls"]).items()
        if value is defaults[name] and not hasattr(type(value), "__get__")
    }


def _is_field(schema: Schema, own: dataclasses.Field[Any]) -> bool:
    """Return whether both libraries read a field of a dataclass alike."""
    if not _has_only(schema, "init", "kw_only", "name", "schema") or not schema.get("init", True):
        return False
    inner = schema["schema"]
    # The default may be pydantic's Field(), which msgspec would use as the value.
    if inner.get("default", dataclasses.MISSING) is not own.default:
        return False
    if inner.get("default_factory", dataclasses.MISSING) is not own.default_factory:
        return False
    return reads_alike(inner)


def _is_reference(schema: Schema) -> bool:
    return _has_only(schema, "schema_ref")


def _is_defined(schema: Schema) -> bool:
    if not _has_only(schema, "schema", "definitions"):
        return False
    return reads_alike(schema["schema"]) and all(map(reads_alike, schema["definitions"]))


_CHECKS: dict[str, Callable[[Schema], bool]] = {
    "dataclass": _is_dataclass,
    "default": _is_default,
    "definition-ref": _is_reference,
    "definitions": _is_defined,
    "dict": _is_dict,
    "enum": _is_enum,
    "frozenset": _is_container,
    "list": _is_container,
    "literal": _is_literal,
    "nullable": _is_nullable,
    "set": _is_container,
    "tuple": _is_tuple,
    "union": _is_union,
}
