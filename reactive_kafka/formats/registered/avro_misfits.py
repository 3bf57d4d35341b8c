"""Why a value does not fit an Avro schema: the field and its type, without the value. Pure.

fastavro says it with the value, and without the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from reactive_kafka.formats.registered.avro_schemas import RECORDS, AvroSchema, short_name, type_of
from reactive_kafka.formats.registered.avro_written import may_be_missing


def misfit(schema: AvroSchema, plain: Any) -> str | None:
    """Why plain data could not be written, with the name of the field; None: the reason is not
    known.
    """
    return _misfit(schema, schema.root, plain, "the value")


def _misfit(schema: AvroSchema, kind: Any, plain: Any, at: str) -> str | None:
    kind = schema.full(kind)
    name = type_of(kind)
    if name == "union":
        return _of_union(schema, kind, plain, at)
    if name in RECORDS:
        return _of_record(schema, kind, plain, at)
    if name in ("array", "map"):
        return _of_container(schema, kind, plain, at)
    if isinstance(plain, Decimal) and kind.get("logicalType") == "decimal":
        return _of_decimal(kind, plain, at)
    says = _SCALARS.get(name)
    return None if says is None else says(kind, plain, at)


def _of_union(schema: AvroSchema, union: list[Any], plain: Any, at: str) -> str | None:
    if plain is None:
        return None if "null" in union else f"{at} is None"
    reasons = [_misfit(schema, branch, plain, at) for branch in union if type_of(branch) != "null"]
    return reasons[0] if len(reasons) == 1 else None


def _of_record(schema: AvroSchema, record: Any, plain: Any, at: str) -> str | None:
    if not isinstance(plain, Mapping):
        return f"{at} takes the record {record['name']}, not {type(plain).__name__}"
    for field in record["fields"]:
        name = f"{short_name(record['name'])}.{field['name']}"
        if field["name"] in plain:
            found = _misfit(schema, field["type"], plain[field["name"]], name)
        else:
            found = None if may_be_missing(field) else f"{name} is missing"
        if found is not None:
            return found
    return None


def _of_container(schema: AvroSchema, kind: Any, plain: Any, at: str) -> str | None:
    if kind["type"] == "map":
        inner = kind["values"]
        what = "dict"
        fits = isinstance(plain, Mapping)
    else:
        inner = kind["items"]
        what = "list"
        fits = isinstance(plain, list | tuple | set | frozenset)
    if not fits:
        return f"{at} takes a {what}, not {type(plain).__name__}"
    values = plain.values() if isinstance(plain, Mapping) else plain
    return next(
        (found for one in values if (found := _misfit(schema, inner, one, at)) is not None), None
    )


def _of_decimal(kind: Any, plain: Decimal, at: str) -> str | None:
    precision = kind["precision"]
    scale = kind.get("scale", 0)
    _, digits, exponent = plain.as_tuple()
    if isinstance(exponent, int) and len(digits) <= precision and -exponent <= scale:
        return None
    return f"{at} does not fit a decimal of precision {precision} and scale {scale}"


def _takes(what: str, *classes: type) -> Callable[[Any, Any, str], str | None]:
    def says(kind: Any, plain: Any, at: str) -> str | None:
        return (
            None if isinstance(plain, classes) else f"{at} takes {what}, not {type(plain).__name__}"
        )

    return says


def _of_enum(kind: Any, plain: Any, at: str) -> str | None:
    return None if plain in kind["symbols"] else f"{at} is no symbol of {kind['name']}"


def _of_bytes(kind: Any, plain: Any, at: str) -> str | None:
    what = (
        "a Decimal"
        if isinstance(kind, Mapping) and kind.get("logicalType") == "decimal"
        else "bytes"
    )
    return _takes(what, bytes, bytearray)(kind, plain, at)


def _of_fixed(kind: Any, plain: Any, at: str) -> str | None:
    if isinstance(plain, bytes | bytearray) and len(plain) != kind["size"]:
        return f"{at} takes {kind['size']} bytes"
    return _of_bytes(kind, plain, at)


_SCALARS: Mapping[str, Callable[[Any, Any, str], str | None]] = {
    "null": _takes("None", type(None)),
    "boolean": _takes("a bool", bool),
    "string": _takes("a str", str),
    "bytes": _of_bytes,
    "fixed": _of_fixed,
    "enum": _of_enum,
}
