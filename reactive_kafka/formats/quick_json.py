"""JSON read by msgspec, if it is installed, wherever that gives what pydantic gives.

What JSON means is said by pydantic's parser alone, which is always there. msgspec is quicker, and
stricter: what it takes, pydantic takes as the same value, with the types that :func:`reads_alike`
knows and the documents that :func:`is_sure` knows. What it refuses is read again by pydantic, which
takes it after all (``NaN``, ``"1"`` for a number) or says why not. So a record is the same value,
or meets the same error, with msgspec and without.

orjson is not asked: it makes floats of integers beyond 64 bits, and nothing in a document tells
beforehand.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pydantic_core import from_json

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.guarded_decoder import Decoder, Read

Schema = Mapping[str, Any]
R = TypeVar("R", Read, Decoder)

_SHALLOW_BYTES = 400
# Of arrays and objects in each other; pydantic's parser takes 201.
_DEPTH = 200
_STRIDE = 430
_DIGITS = re.compile(rb"[0-9]{10}")

_ABSENT = object()
_FREE = ("any", "bool", "date", "float", "int", "str", "uuid")
_TELLABLE = ("bool", "float", "int", "str")
_ALWAYS = {"type", "metadata", "ref"}


def parsed(value: bytes) -> Any:
    """The document.

    Raises:
        DecodeError: It is no JSON. ``NaN`` and ``Infinity`` are taken, as Python's json writes
            them.
    """
    try:
        return from_json(value)
    except ValueError as error:
        # The parser names the problem, line and column, and quotes nothing.
        problem = f"not valid JSON: {error}"
    raise DecodeError(problem)


def is_sure(value: bytes) -> bool:
    """Whether msgspec refuses *value* if pydantic's parser does.

    It passes over what no field asks for without a look at three things: how deep it goes, whether
    text is UTF-8, and whether an integer has more than 4,300 digits.
    """
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    # Each level has an end, too.
    if len(value) <= _SHALLOW_BYTES:
        return True
    # So many digits in a row cover ten bytes of every 430th.
    return (
        value.count(b"[") + value.count(b"{") <= _DEPTH and _DIGITS.search(value[::_STRIDE]) is None
    )


def quickly(quick: Read | None, careful: R) -> R:
    """*careful*, with *quick* asked first where that makes no difference; *careful* alone if there
    is no *quick*.

    It may be around a whole decoder: most records are read in this one call then.
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
            # No value; or of msgspec, or of the user's __post_init__: said by the other one.
            pass
        return careful(value)

    return read


def quick_reader(annotation: Any, schema: Schema) -> Read | None:
    """msgspec's reader of *annotation*, of which *schema* is pydantic's core schema.

    None without msgspec, or if it does not read that type as pydantic does.
    """
    inner = (
        schema["schema"] if schema["type"] == "nullable" and _has_only(schema, "schema") else schema
    )
    defaults = _defaults_to_give(inner)
    if not (_is_dataclass(inner, defaults) if defaults else reads_alike(schema)):
        return None
    try:
        import msgspec
    except ImportError:
        return None
    try:
        decode = msgspec.json.Decoder(annotation).decode
    except Exception:
        # It evaluates annotations that are strings, in its own way.
        return None
    return (
        _with_own_defaults(decode, defaults, len(dataclasses.fields(inner["cls"])))
        if defaults
        else decode
    )


def _with_own_defaults(decode: Read, defaults: Mapping[str, object], fields: int) -> Read:
    """*decode*, of a dataclass of so many *fields*: what msgspec leaves to the class becomes the
    instance's own.
    """
    given = tuple(defaults.items())

    def read(value: bytes) -> object:
        made = decode(value)
        if made is not None and len(own := made.__dict__) < fields:
            for name, default in given:
                if name not in own:
                    own[name] = default
        return made

    return read


def struct_reader(decode: Read, convert: Read) -> Read:
    """What *decode* reads, a decoder of msgspec's, with what is JSON decided as for every other
    type.

    Args:
        decode: From bytes.
        convert: The same from a document: with numbers in it that msgspec does not read.
    """

    def read(value: bytes) -> object:
        document = parsed(value)
        try:
            return decode(value)
        except ValueError:
            # As msgspec's errors are, and UnicodeDecodeError.
            pass
        return convert(document)

    return read


def reads_alike(schema: Schema) -> bool:
    """Whether what msgspec takes for a type is what pydantic makes of it, going by pydantic's core
    schema of the type.

    A list of what is known to be alike: a constraint, a validator, an alias, a key that a later
    pydantic adds make that false. Times are not on it (of nanoseconds the one rounds and the other
    cuts off), nor decimals (0.10), nor bytes (base64 or text), nor TypedDicts (the order of keys),
    nor pydantic's models, which msgspec does not know.
    """
    kind = schema["type"]
    check = _CHECKS.get(kind)
    return kind in _FREE and _has_only(schema) if check is None else check(schema)


def _has_only(schema: Schema, *keys: str) -> bool:
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
    keys, values = (schema.get(name, {"type": "any"}) for name in ("keys_schema", "values_schema"))
    known = _has_only(schema, "keys_schema", "values_schema")
    return known and keys["type"] in ("any", "str") and reads_alike(keys) and reads_alike(values)


def _is_union(schema: Schema) -> bool:
    """Of what a document tells apart: which member of others pydantic chooses is a matter of
    points.
    """
    choices = schema["choices"]
    return _has_only(schema, "choices") and all(
        isinstance(one, Mapping) and one["type"] in _TELLABLE and _has_only(one) for one in choices
    )


def _is_literal(schema: Schema) -> bool:
    return _has_only(schema, "expected") and all(
        type(one) in (str, int) for one in schema["expected"]
    )


def _is_enum(schema: Schema) -> bool:
    kinds = {type(member.value) for member in schema["members"]}
    return _has_only(schema, "cls", "members", "sub_type") and kinds in ({str}, {int})


def _is_default(schema: Schema) -> bool:
    known = _has_only(schema, "schema", "default", "default_factory", "default_factory_takes_data")
    return known and not schema.get("default_factory_takes_data") and reads_alike(schema["schema"])


def _is_nullable(schema: Schema) -> bool:
    return _has_only(schema, "schema") and reads_alike(schema["schema"])


def _is_dataclass(schema: Schema, given: Collection[str] = ()) -> bool:
    """Whether it is one that both make alike, but for the defaults that are *given* to it
    afterwards.
    """
    kind = schema["cls"]
    arguments = schema["schema"]
    own = {field.name: field for field in dataclasses.fields(kind)}
    return (
        _has_only(schema, "cls", "config", "fields", "frozen", "post_init", "schema", "slots")
        and schema.get("config", {}).keys() <= {"title"}
        and _has_only(arguments, "collect_init_only", "computed_fields", "dataclass_name", "fields")
        # Without those that have init=False.
        and {one["name"] for one in arguments["fields"]} == own.keys()
        and all(_is_field(one, own[one["name"]]) for one in arguments["fields"])
        and _left_to_class(kind).keys() <= set(given)
        # msgspec asks an instance what it lacks, and makes one of any class.
        and not hasattr(kind, "__getattr__")
        and all("__getattribute__" not in vars(one) for one in kind.__mro__[:-1])
        and not inspect.isabstract(kind)
    )


def _left_to_class(kind: type) -> dict[str, object]:
    """Field -> what the class has of that name, but for slots: a default, mostly.

    msgspec leaves it there, so that ``vars()`` of an instance misses it. With a slot, or a factory,
    it sets it.
    """
    found = (
        (one.name, inspect.getattr_static(kind, one.name, _ABSENT))
        for one in dataclasses.fields(kind)
    )
    return {
        name: value
        for name, value in found
        if value is not _ABSENT and not isinstance(value, types.MemberDescriptorType)
    }


def _defaults_to_give(schema: Schema) -> dict[str, object]:
    """Of what msgspec leaves to a dataclass, what can be given to an instance after that."""
    if schema["type"] != "dataclass" or schema.get("post_init"):
        # A __post_init__ has seen the instance without them.
        return {}
    defaults = {one.name: one.default for one in dataclasses.fields(schema["cls"])}
    return {
        name: value
        for name, value in _left_to_class(schema["cls"]).items()
        if value is defaults[name] and not hasattr(type(value), "__get__")
    }


def _is_field(schema: Schema, own: dataclasses.Field[Any]) -> bool:
    inner = schema["schema"]
    # A default may have been pydantic's Field(), which msgspec would take for the value.
    default = (
        inner.get("default", dataclasses.MISSING),
        inner.get("default_factory", dataclasses.MISSING),
    )
    is_known = _has_only(schema, "init", "kw_only", "name", "schema") and schema.get("init", True)
    return (
        is_known
        and default[0] is own.default
        and default[1] is own.default_factory
        and reads_alike(inner)
    )


def _is_reference(schema: Schema) -> bool:
    return _has_only(schema, "schema_ref")


def _is_defined(schema: Schema) -> bool:
    known = _has_only(schema, "schema", "definitions")
    return known and reads_alike(schema["schema"]) and all(map(reads_alike, schema["definitions"]))


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
