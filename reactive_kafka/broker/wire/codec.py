"""Writes and reads messages, each in the version asked for. Pure.

Values are dicts: name of a field -> its value, and a dict again for a struct. What is left out has
the default of Kafka's definition, and so has every field that the version does not have. A message
that was read has all fields of its definition, of all versions. An unknown tagged field is skipped.

UUIDs are 16 bytes. Records are a view of the buffer they were read from; nothing is copied.

>>> content = encode(HEARTBEAT.request, 4, {"group_id": "billing", "member_id": "m-1"})
>>> decode(HEARTBEAT.request, 4, content)["group_instance_id"] is None
True
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from reactive_kafka.broker.wire.errors import MessageDecodeError, MessageEncodeError
from reactive_kafka.broker.wire.lengths import (
    COMPACT,
    INT16,
    INT32,
    Buffer,
    read_varint,
    write_varint,
)
from reactive_kafka.broker.wire.schema import OF_THE_TYPE, WireField, WireMessage, versions_of
from reactive_kafka.broker.wire.types import (
    FIXED_LAYOUTS,
    NO_UUID,
    ArrayType,
    BytesType,
    FixedType,
    NullableType,
    NumbersType,
    TextType,
    WireType,
    check_fixed,
)

Values = Mapping[str, Any]
UNWRITABLE = (ValueError, TypeError, struct.error)
CUT_OFF = (EOFError, IndexError, struct.error)
# Types whose values ``struct`` would change silently, so each is checked.
CHECKED_TYPES = ("bool", "uuid")


def encode(message: WireMessage, version: int, values: Values) -> bytes:
    """Return the bytes of a message.

    Raises:
        MessageEncodeError: A value is of another type or too large. A field is unknown, or this
            version does not have it, although another value than its default is given.
    """
    out = bytearray()
    struct_of(message, version).write(values, out)
    return bytes(out)


def decode(message: WireMessage, version: int, buffer: Buffer) -> dict[str, Any]:
    """Return the values of a message, which is the whole buffer.

    Raises:
        MessageDecodeError: The buffer ends too early or too late, or has something else.
    """
    values, end = decode_first(message, version, buffer)
    if end != len(buffer):
        raise MessageDecodeError(
            f"{message.name} v{version}: {len(buffer) - end} bytes follow after its end"
        )
    return values


def decode_first(
    message: WireMessage, version: int, buffer: Buffer, at: int = 0
) -> tuple[dict[str, Any], int]:
    """Return the values of a message that begins at a place, and where it ends.

    Raises:
        MessageDecodeError: The buffer ends too early, or has something else.
    """
    return struct_of(message, version).read(buffer, at)


@cache
def struct_of(message: WireMessage, version: int) -> StructType:
    """Return what writes and reads a message in one version.

    Raises:
        MessageEncodeError: It has no such version.
    """
    if version not in versions_of(message.versions):
        raise MessageEncodeError(
            f"{message.name} has no version {version}; it has {message.versions}"
        )
    is_flexible = version in versions_of(message.flexible)
    return StructType(message.fields, version, f"{message.name} v{version}", is_flexible)


class StructType:
    """Writes and reads a message, or a struct in it, in one version.

    Args:
        fields: Of all versions.
        version: Of the message.
        where: The message, and the path to this struct. It begins the text of errors.
        is_flexible: The version has compact lengths and tagged fields.
    """

    def __init__(
        self, fields: Sequence[WireField], version: int, where: str, is_flexible: bool
    ) -> None:
        self._where = where
        self._is_flexible = is_flexible
        self._fields = {field.name: field for field in fields}
        self._parts: list[_Part] = []
        self._tagged: dict[int, _TaggedField] = {}
        # Fields that this version does not have, and that must not be dropped.
        self._refused: list[WireField] = []
        # Of the fields that a message may be without: those that it cannot have first.
        self._constant_defaults: dict[str, Any] = {}
        self._built_defaults: list[WireField] = []
        fixed: list[WireField] = []
        for field in fields:
            if version not in versions_of(field.versions):
                self._note_absent(field)
            elif version in versions_of(field.tagged):
                self._note_absent(field, is_tagged=True)
                wire_type = _type_of(field, version, where, is_flexible)
                self._tagged[field.tag or 0] = _TaggedField(field, wire_type, where)
            elif field.type in FIXED_LAYOUTS:
                fixed.append(field)
            else:
                self._close_run(fixed)
                wire_type = _type_of(field, version, where, is_flexible)
                self._parts.append(_SingleField(field, wire_type, where))
        self._close_run(fixed)

    def _note_absent(self, field: WireField, *, is_tagged: bool = False) -> None:
        if not is_tagged and not field.ignorable:
            self._refused.append(field)
        value = default_of(field)
        if isinstance(value, list | dict):
            self._built_defaults.append(field)
        else:
            self._constant_defaults[field.name] = value

    def _close_run(self, fixed: list[WireField]) -> None:
        if fixed:
            self._parts.append(_FixedFields(fixed, self._where))
            fixed.clear()

    def write(self, value: Any, out: bytearray) -> None:
        """Append a message or struct, given as a mapping.

        Raises:
            MessageEncodeError: As in :func:`encode`.
        """
        if not isinstance(value, Mapping):
            raise MessageEncodeError(
                f"{self._where}: {value!r} is not a mapping of field names to values"
            )
        if not value.keys() <= self._fields.keys():
            unknown = ", ".join(sorted(map(str, value.keys() - self._fields.keys())))
            raise MessageEncodeError(
                f"{self._where} has no field {unknown}; it has {', '.join(self._fields)}"
            )
        for field in self._refused:
            if field.name in value and not is_default(field, value[field.name]):
                raise MessageEncodeError(
                    f"{self._where} has no {field.name}, so {value[field.name]!r} cannot be sent; "
                    f"versions {field.versions} have it"
                )
        for part in self._parts:
            part.write(value, out)
        if self._is_flexible:
            self._write_tagged(value, out)

    def _write_tagged(self, values: Values, out: bytearray) -> None:
        given = [
            (tag, tagged)
            for tag, tagged in sorted(self._tagged.items())
            if tagged.field.name in values
            and not is_default(tagged.field, values[tagged.field.name])
        ]
        write_varint(len(given), out)
        for tag, tagged in given:
            content = bytearray()
            tagged.part.write(values, content)
            write_varint(tag, out)
            write_varint(len(content), out)
            out += content

    def read(self, buffer: Buffer, at: int) -> tuple[dict[str, Any], int]:
        """Return the message or struct at a place in the buffer, and where it ends.

        Raises:
            MessageDecodeError: As in :func:`decode_first`.
        """
        values = self._constant_defaults.copy()
        for field in self._built_defaults:
            values[field.name] = default_of(field)
        for part in self._parts:
            at = part.read(values, buffer, at)
        if self._is_flexible:
            at = self._read_tagged(values, buffer, at)
        return values, at

    def _read_tagged(self, values: dict[str, Any], buffer: Buffer, at: int) -> int:
        try:
            count, at = read_varint(buffer, at)
            for _ in range(count):
                tag, at = read_varint(buffer, at)
                size, at = read_varint(buffer, at)
                end = at + size
                if end > len(buffer):
                    raise EOFError
                if tag in self._tagged:
                    self._tagged[tag].read(values, buffer[at:end])
                at = end
        except CUT_OFF as error:
            raise MessageDecodeError(_ends_early(f"{self._where}, tags", buffer)) from error
        except ValueError as error:
            raise MessageDecodeError(f"{self._where}, tags: {error}") from error
        return at


class _Part(Protocol):
    """Writes and reads one field of a struct, or several neighbours at once."""

    def write(self, values: Values, out: bytearray) -> None: ...

    def read(self, values: dict[str, Any], buffer: Buffer, at: int) -> int: ...


class _SingleField:
    """A field whose size depends on its value."""

    def __init__(self, field: WireField, wire_type: WireType, where: str) -> None:
        self._name = field.name
        # An empty struct has the defaults of its fields.
        self._default = default_of(field)
        self._type = wire_type
        self._where = f"{where}, {field.name}"

    def write(self, values: Values, out: bytearray) -> None:
        try:
            self._type.write(values.get(self._name, self._default), out)
        except MessageEncodeError:
            # From a struct inside of this field. It names the field already.
            raise
        except UNWRITABLE as error:
            raise MessageEncodeError(f"{self._where}: {error}") from error

    def read(self, values: dict[str, Any], buffer: Buffer, at: int) -> int:
        try:
            values[self._name], at = self._type.read(buffer, at)
        except CUT_OFF as error:
            raise MessageDecodeError(_ends_early(self._where, buffer)) from error
        except ValueError as error:
            raise MessageDecodeError(f"{self._where}: {error}") from error
        return at


class _FixedFields:
    """Neighbours of fixed sizes, which are packed and unpacked at once."""

    def __init__(self, fields: Sequence[WireField], where: str) -> None:
        self._fields = tuple(fields)
        self._names = [field.name for field in fields]
        self._defaults = [(field.name, default_of(field)) for field in fields]
        self._checked = [field for field in fields if field.type in CHECKED_TYPES]
        self._struct = struct.Struct(">" + "".join(FIXED_LAYOUTS[field.type] for field in fields))
        self._where = where

    def write(self, values: Values, out: bytearray) -> None:
        try:
            for field in self._checked:
                if field.name in values:
                    check_fixed(field.type, values[field.name])
            out += self._struct.pack(*[values.get(*default) for default in self._defaults])
        except UNWRITABLE as error:
            raise self._error_of(values) from error

    def _error_of(self, values: Values) -> MessageEncodeError:
        """Return the error of the first field that cannot be packed."""
        for field in self._fields:
            value = values.get(field.name, default_of(field))
            try:
                FixedType(field.type).write(value, bytearray())
            except UNWRITABLE as error:
                return MessageEncodeError(
                    f"{self._where}, {field.name}: {value!r} is no {field.type} ({error})"
                )
        raise AssertionError("each of the values can be packed by itself")

    def read(self, values: dict[str, Any], buffer: Buffer, at: int) -> int:
        try:
            values.update(zip(self._names, self._struct.unpack_from(buffer, at), strict=True))
        except CUT_OFF as error:
            where = f"{self._where}, {self._names[0]}"
            raise MessageDecodeError(_ends_early(where, buffer)) from error
        return at + self._struct.size


class _TaggedField:
    """A field that is only there if it has another value than its default."""

    def __init__(self, field: WireField, wire_type: WireType, where: str) -> None:
        self.field = field
        self.part = _SingleField(field, wire_type, where)
        self._where = f"{where}, {field.name}"

    def read(self, values: dict[str, Any], content: Buffer) -> None:
        end = self.part.read(values, content, 0)
        if end != len(content):
            raise MessageDecodeError(
                f"{self._where}: the tag has {len(content)} bytes, and its value {end} of them"
            )


def default_of(field: WireField) -> Any:
    """Return what a field has if no value is given; a new object each time."""
    if field.default is not OF_THE_TYPE:
        return field.default
    if field.type.startswith("[]"):
        return []
    if field.fields:
        return {inner.name: default_of(inner) for inner in field.fields}
    return _ZEROES[field.type]


_ZEROES: Mapping[str, Any] = {
    "bool": False,
    "float64": 0.0,
    "uuid": NO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), 0),
}


def is_default(field: WireField, value: Any) -> bool:
    """True if leaving the field out says the same as this value."""
    if isinstance(value, Mapping):
        return field.default is OF_THE_TYPE and all(
            inner.name not in value or is_default(inner, value[inner.name])
            for inner in field.fields
        )
    default = default_of(field)
    if isinstance(default, list):
        return isinstance(value, Collection) and not value
    return bool(value == default)


def _type_of(field: WireField, version: int, where: str, is_flexible: bool) -> WireType:
    """Return what writes and reads a field in a version of its message."""
    if field.flexible is not None:
        is_flexible = version in versions_of(field.flexible)
    is_nullable = version in versions_of(field.nullable)
    where = f"{where}, {field.name}"
    if field.type.startswith("[]"):
        length = COMPACT if is_flexible else INT32
        name = field.type.removeprefix("[]")
        if name in FIXED_LAYOUTS and name not in CHECKED_TYPES:
            return NumbersType(name, length, nullable=is_nullable)
        element = _plain_type(name, field.fields, version, where, is_flexible)
        return ArrayType(element, length, nullable=is_nullable)
    plain = _plain_type(field.type, field.fields, version, where, is_flexible, is_nullable)
    return NullableType(plain) if field.fields and is_nullable else plain


def _plain_type(
    name: str,
    fields: Sequence[WireField],
    version: int,
    where: str,
    is_flexible: bool,
    is_nullable: bool = False,
) -> WireType:
    if name in FIXED_LAYOUTS:
        return FixedType(name)
    if name == "string":
        return TextType(COMPACT if is_flexible else INT16, nullable=is_nullable)
    if name in ("bytes", "records"):
        length = COMPACT if is_flexible else INT32
        return BytesType(length, nullable=is_nullable, as_view=name == "records")
    return StructType(fields, version, where, is_flexible)


def _ends_early(where: str, buffer: Buffer) -> str:
    return f"{where}: the {len(buffer)} bytes end before it does"
