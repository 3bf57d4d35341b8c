"""Explains why a value does not fit an Avro schema. Pure.

The text names the field and its type, and not the value. Fastavro's own errors name the value, and
not the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from reactive_kafka.formats.registered.avro_schemas import RECORDS, AvroSchema, short_name, type_of
from reactive_kafka.formats.registered.avro_written import may_be_missing


def misfit(schema: AvroSchema, plain: Any) -> str | None:
    """Return why plain data could not be written, with the field's name; None: it is not known."""
    return _misfit(schema, schema.root, plain, "the value")


def _misfit(schema: AvroSchema, kind: Any, plain: Any, where: str) -> str | None:
    """Return why *plain* does not fit the type *kind*. *where* names the field."""
    kind = schema.full(kind)
    name = type_of(kind)
    if name == "union":
        return _union_misfit(schema, kind, plain, where)
    if name in RECORDS:
        return _record_misfit(schema, kind, plain, where)
    if name in ("array", "map"):
        return _container_misfit(schema, kind, plain, where)
    if isinstance(plain, Decimal) and _is_decimal(kind):
        return _decimal_misfit(kind, plain, where)
    explain = _SCALARS.get(name)
    return None if explain is None else explain(kind, plain, where)


def _union_misfit(schema: AvroSchema, union: list[Any], plain: Any, where: str) -> str | None:
    if plain is None:
        return None if "null" in union else f"{where} is None"
    reasons = [
        _misfit(schema, branch, plain, where) for branch in union if type_of(branch) != "null"
    ]
    # With several branches it is not known which of them was meant.
    return reasons[0] if len(reasons) == 1 else None


def _record_misfit(schema: AvroSchema, record: Any, plain: Any, where: str) -> str | None:
    if not isinstance(plain, Mapping):
        return f"{where} takes the record {record['name']}, not {type(plain).__name__}"
    for field in record["fields"]:
        name = f"{short_name(record['name'])}.{field['name']}"
        if field["name"] in plain:
            reason = _misfit(schema, field["type"], plain[field["name"]], name)
        elif may_be_missing(field):
            reason = None
        else:
            reason = f"{name} is missing"
        if reason is not None:
            return reason
    return None


def _container_misfit(schema: AvroSchema, kind: Any, plain: Any, where: str) -> str | None:
    if kind["type"] == "map":
        if not isinstance(plain, Mapping):
            return f"{where} takes a dict, not {type(plain).__name__}"
        if not all(isinstance(key, str) for key in plain):
            return f"{where} has a key that is no str"
        item_type = kind["values"]
        items: Iterable[Any] = plain.values()
    else:
        if not isinstance(plain, list | tuple | set | frozenset):
            return f"{where} takes a list, not {type(plain).__name__}"
        item_type = kind["items"]
        items = plain
    for item in items:
        reason = _misfit(schema, item_type, item, where)
        if reason is not None:
            return reason
    return None


def _decimal_misfit(kind: Any, plain: Decimal, where: str) -> str | None:
    precision = kind["precision"]
    scale = kind.get("scale", 0)
    _, digits, exponent = plain.as_tuple()
    if isinstance(exponent, int) and len(digits) <= precision and -exponent <= scale:
        return None
    return f"{where} does not fit a decimal of precision {precision} and scale {scale}"


def _takes(what: str, *classes: type) -> Callable[[Any, Any, str], str | None]:
    def explain(kind: Any, plain: Any, where: str) -> str | None:
        if isinstance(plain, classes):
            return None
        return f"{where} takes {what}, not {type(plain).__name__}"

    return explain


def _enum_misfit(kind: Any, plain: Any, where: str) -> str | None:
    return None if plain in kind["symbols"] else f"{where} is no symbol of {kind['name']}"


def _string_misfit(kind: Any, plain: Any, where: str) -> str | None:
    if isinstance(plain, str) and any("\ud800" <= character <= "\udfff" for character in plain):
        return f"{where} has a lone surrogate, which is no UTF-8"
    return _takes("a str", str)(kind, plain, where)


def _is_decimal(kind: Any) -> bool:
    return isinstance(kind, Mapping) and kind.get("logicalType") == "decimal"


def _bytes_misfit(kind: Any, plain: Any, where: str) -> str | None:
    what = "a Decimal" if _is_decimal(kind) else "bytes"
    return _takes(what, bytes, bytearray)(kind, plain, where)


def _fixed_misfit(kind: Any, plain: Any, where: str) -> str | None:
    if isinstance(plain, bytes | bytearray) and len(plain) != kind["size"]:
        return f"{where} takes {kind['size']} bytes"
    return _bytes_misfit(kind, plain, where)


_SCALARS: Mapping[str, Callable[[Any, Any, str], str | None]] = {
    "null": _takes("None", type(None)),
    "boolean": _takes("a bool", bool),
    "string": _string_misfit,
    "bytes": _bytes_misfit,
    "fixed": _fixed_misfit,
    "enum": _enum_misfit,
}
