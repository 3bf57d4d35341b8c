"""Files of Protobuf messages: from ``.proto`` text, generated classes or a registry, to classes of
messages.

A registry's clients name a message by where it stands in its file: the number of the outermost
message, then that of one inside of it, and so on.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reactive_kafka.errors import MissingExtraError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.registered.proto_compiler import protoc
from reactive_kafka.formats.registered.proto_known import is_built_in, known_file, known_names
from reactive_kafka.formats.registered.schema_questions import Reference, Schema

MOST_INDEXES = 100
"""How deep messages may stand inside of messages."""


def protobuf() -> Any:
    """The package ``google.protobuf``, with what is used of it."""
    try:
        import google.protobuf
        import google.protobuf.descriptor_pb2
        import google.protobuf.descriptor_pool
        import google.protobuf.message
        import google.protobuf.message_factory
    except ImportError as error:
        raise MissingExtraError("the format 'protobuf'", "protobuf") from error
    return google.protobuf


def is_message(kind: Any) -> bool:
    """Whether it is a generated class."""
    return isinstance(kind, type) and hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


def schema_of_file(file: Any) -> Schema:
    """The schema of a file descriptor; what it imports goes to subjects of their names.

    Files that every reader has (:mod:`.proto_known`) are not among these.
    """
    proto = protobuf().descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    proto.ClearField("source_code_info")
    references = tuple(
        Reference(one.name, one.name, 0, schema_of_file(one))
        for one in file.dependencies
        if not is_built_in(one.name)
    )
    return Schema("PROTOBUF", text_of(proto.SerializeToString(deterministic=True)), references)


def text_of(descriptor: bytes) -> str:
    """A serialized file as clients register it."""
    return base64.standard_b64encode(descriptor).decode()


def is_serialized(text: str) -> bool:
    """Whether a schema is a file that needs no compiler."""
    try:
        return bool(
            protobuf().descriptor_pb2.FileDescriptorProto.FromString(
                base64.b64decode(text, validate=True)
            )
        )
    except (binascii.Error, ValueError, protobuf().message.DecodeError):
        return False


def file_of(schema: Schema) -> Any:
    """The file descriptor of a schema whose texts are serialized files; any error means that they
    are none.

    FormatError: it imports a file that it does not refer to, and that is not built in.
    """
    found = protobuf()
    pool = found.descriptor_pool.DescriptorPool()
    referred_to = _referred_to(schema)
    for name, text in {**referred_to, "": schema.text}.items():
        proto = found.descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(text, validate=True)
        )
        proto.name = name or "the schema.proto"
        for needed in proto.dependency:
            if needed not in referred_to:
                _add_known(pool, needed)
        pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName("the schema.proto")


def _referred_to(schema: Schema) -> dict[str, str]:
    """Name -> text of the references. Built-in files are left out, because our copy of them always
    counts.
    """
    return {name: text for name, text in schema.texts().items() if not is_built_in(name)}


def _add_known(pool: Any, name: str) -> None:
    """Add a file that no schema refers to, and what it imports."""
    file = known_file(name)
    if file is None:
        raise FormatError(f"it imports {name!r}, and has no reference to it")
    for needed in file.dependency:
        _add_known(pool, needed)
    pool.AddSerializedFile(file.SerializeToString())


def message_at(file: Any, indexes: Sequence[int]) -> Any:
    """The descriptor of a message; IndexError: there is none."""
    # In their order.
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if index < 0:
            raise IndexError
        found = messages[index]
        messages = list(found.nested_types)
    if found is None:
        raise IndexError
    return found


def indexes_of(descriptor: Any) -> list[int]:
    """Where a message stands in its file."""
    found: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        beside = (
            descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
        )
        found.insert(0, [one.full_name for one in beside].index(descriptor.full_name))
        descriptor = outer
    return found


def class_of(descriptor: Any) -> Any:
    """The class of a message that was not generated."""
    return protobuf().message_factory.GetMessageClass(descriptor)


def write_indexes(indexes: Sequence[int]) -> bytes:
    """As clients write them: the first message of all is a single zero."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def read_indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The indexes that stand at a place, and where they end; a ValueError or IndexError if none
    do.
    """
    count, at = _read_varint(value, at)
    if not 0 <= count <= MOST_INDEXES:
        raise ValueError
    found = []
    for _ in range(count):
        index, at = _read_varint(value, at)
        found.append(index)
    return tuple(found) or (0,), at


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _read_varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        if shift > 63:
            raise ValueError


def compiled(file: str) -> Any:
    """The file descriptor of a ``.proto`` file. Its imports are looked for in its folder, then in
    each folder above.

    FormatError: there is no such file, or protoc does not take it; the text says why.
    """
    # Path.resolve() would follow links, and the file of a mounted ConfigMap is a link to another
    # folder.
    path = Path(os.path.abspath(file))  # noqa: PTH100
    if not path.is_file():
        raise FormatError(f"{file} cannot be read: there is no such file")
    try:
        return _compiled([path.parent, *path.parent.parents], path.name, {})
    except FormatError as error:
        raise FormatError(f"{file} is no .proto file that protoc takes: {error}") from None


def compiled_text(schema: Schema) -> str:
    """``.proto`` text, whose references are serialized files, as one itself; FormatError as in
    :func:`compiled`.
    """
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-") as folder:
        Path(folder, "the_schema.proto").write_text(schema.text, encoding="utf-8")
        return text_of(
            _compiled([Path(folder)], "the_schema.proto", _referred_to(schema)).serialized_pb
        )


def _compiled(roots: list[Path], name: str, referred_to: dict[str, str]) -> Any:
    found = protobuf()
    given = found.descriptor_pb2.FileDescriptorSet()
    for one, text in referred_to.items():
        proto = given.file.add()
        proto.MergeFromString(base64.b64decode(text, validate=True))
        proto.name = one
    missing = None
    for one in known_names():
        if one in referred_to:
            continue
        try:
            given.file.append(known_file(one))
        except MissingExtraError as error:
            missing = error
    try:
        files = protoc(roots, name, given)
    except FormatError as error:
        if missing is not None and "google/type/" in str(error):
            raise missing from error
        raise
    pool = found.descriptor_pool.DescriptorPool()
    # Protoc has put what others import before them.
    for proto in files.file:
        pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName(name)


def messages_of(file: Any) -> Iterator[Any]:
    """The messages of a file, those inside of others behind these."""
    todo = list(file.message_types_by_name.values())
    while todo:
        message = todo.pop(0)
        yield message
        todo += message.nested_types
