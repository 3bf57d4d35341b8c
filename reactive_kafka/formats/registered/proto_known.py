"""Protobuf files that Confluent's serialisers have built in: Google's types, and Confluent's.

A schema imports them without a reference, and a registry does not have them. Their content is
always that of this module, even if a registry or a folder has another file of the same name. So do
Confluent's serialisers.

Google's common types (``google/type``) come from the package googleapis-common-protos. Confluent's
files are small, and are written down here: ``confluent/meta.proto`` has options for documentation,
tags and rules, ``confluent/type/decimal.proto`` and ``variant.proto`` have one message each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.errors import MissingExtraError

_GOOGLES = "google/protobuf/"
_COMMON = "google/type/"
_COMMON_FILES = (
    "calendar_period",
    "color",
    "date",
    "datetime",
    "dayofweek",
    "expr",
    "fraction",
    "latlng",
    "money",
    "month",
    "postal_address",
    "quaternion",
    "timeofday",
)
# Confluent's serialisers do not have these, so schemas refer to them. A schema without such a
# reference is read all the same.
_MORE_COMMON_FILES = ("decimal", "interval", "localized_text", "phone_number")
_META_NUMBER = 1088
"""The number of Confluent's options on files, messages, fields, enums and their values."""

_COMMON_NAMES = tuple(f"{_COMMON}{name}.proto" for name in (*_COMMON_FILES, *_MORE_COMMON_FILES))
_REFERRED_TO = frozenset(f"{_COMMON}{name}.proto" for name in _MORE_COMMON_FILES)


def is_built_in(name: str) -> bool:
    """Return whether every reader has a file of this name, so that no schema refers to it."""
    if name.startswith(_GOOGLES) or name in _CONFLUENTS:
        return True
    return name in _COMMON_NAMES and name not in _REFERRED_TO


def known_names() -> list[str]:
    """Return the names of Confluent's files and the common types. Imports come first.

    Google's own files are left out, because protoc has them.
    """
    return [*_CONFLUENTS, *_COMMON_NAMES]


def known_file(name: str) -> Any:
    """Return the content of a file as a ``FileDescriptorProto``; None: it is not built in.

    Raises:
        MissingExtraError: It is one of Google's common types, and their package is not installed.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in _CONFLUENTS:
        file = FileDescriptorProto(name=name, syntax="proto3")
        _CONFLUENTS[name](file)
        return file
    found = _descriptor(name)
    if found is None:
        return None
    file = FileDescriptorProto()
    found.CopyToProto(file)
    return file


def _descriptor(name: str) -> Any:
    """Return the file descriptor of this process.

    A process has one file of each name, and the application may have generated its own.
    """
    from google.protobuf.descriptor_pool import Default

    pool = Default()
    if name.startswith(_GOOGLES):
        _load_googles()
    elif name not in _COMMON_NAMES:
        return None
    try:
        return pool.FindFileByName(name)
    except KeyError:
        if name not in _COMMON_NAMES:
            return None
    _load_common()
    return pool.FindFileByName(name)


def _load_googles() -> None:
    # Each module adds its file to the process when it is imported.
    from google.protobuf import (  # noqa: F401
        any_pb2,
        api_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )


def _load_common() -> None:
    try:
        from google.type import (  # noqa: F401
            calendar_period_pb2,
            color_pb2,
            date_pb2,
            datetime_pb2,
            dayofweek_pb2,
            decimal_pb2,
            expr_pb2,
            fraction_pb2,
            interval_pb2,
            latlng_pb2,
            localized_text_pb2,
            money_pb2,
            month_pb2,
            phone_number_pb2,
            postal_address_pb2,
            quaternion_pb2,
            timeofday_pb2,
        )
    except ImportError as error:
        raise MissingExtraError("Protobuf schemas that import google/type", "protobuf") from error


def _meta(file: Any) -> None:
    file.package = "confluent"
    file.dependency.append(f"{_GOOGLES}descriptor.proto")

    meta = file.message_type.add(name="Meta")
    _add_field(meta, "doc", 1, "STRING")
    _add_field(meta, "params", 2, "MESSAGE", of=".confluent.Meta.ParamsEntry", is_repeated=True)
    _add_field(meta, "tags", 3, "STRING", is_repeated=True)
    _add_field(meta, "rules", 4, "MESSAGE", of=".confluent.Rule", is_repeated=True)
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    _add_field(entry, "key", 1, "STRING")
    _add_field(entry, "value", 2, "STRING")

    rule = file.message_type.add(name="Rule")
    for number, field in enumerate(("name", "doc", "expr", "sql"), 1):
        _add_field(rule, field, number, "STRING")

    for what, options in (
        ("file", "FileOptions"),
        ("message", "MessageOptions"),
        ("field", "FieldOptions"),
        ("enum", "EnumOptions"),
        ("enum_value", "EnumValueOptions"),
    ):
        option = _filled(
            file.extension.add(), f"{what}_meta", _META_NUMBER, "MESSAGE", of=".confluent.Meta"
        )
        option.extendee = f".google.protobuf.{options}"


def _decimal(file: Any) -> None:
    file.package = "confluent.type"
    decimal = file.message_type.add(name="Decimal")
    _add_field(decimal, "value", 1, "BYTES")
    _add_field(decimal, "precision", 2, "UINT32")
    _add_field(decimal, "scale", 3, "INT32")


def _variant(file: Any) -> None:
    file.package = "confluent.type"
    variant = file.message_type.add(name="Variant")
    _add_field(variant, "metadata", 1, "BYTES")
    _add_field(variant, "value", 2, "BYTES")


def _old_path_of_decimal(file: Any) -> None:
    file.dependency.append("confluent/type/decimal.proto")
    file.public_dependency.append(0)


def _add_field(
    message: Any, name: str, number: int, kind: str, of: str = "", is_repeated: bool = False
) -> None:
    _filled(message.field.add(), name, number, kind, of, is_repeated)


def _filled(
    field: Any, name: str, number: int, kind: str, of: str = "", is_repeated: bool = False
) -> Any:
    field.name = name
    field.number = number
    field.type = getattr(field, f"TYPE_{kind}")
    field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
    if of:
        field.type_name = of
    return field


_CONFLUENTS: dict[str, Callable[[Any], None]] = {
    "confluent/meta.proto": _meta,
    "confluent/type/decimal.proto": _decimal,
    "confluent/type/variant.proto": _variant,
    # The path in the first releases. The file only re-exports the one above.
    "confluent/types/decimal.proto": _old_path_of_decimal,
}
