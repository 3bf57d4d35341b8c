"""Protobuf files, from ``.proto`` text, generated classes or a registry, and their messages.

A record names a message by its place in its file: the index of the outermost message, then the
index of the message in it, and so on.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from reactive_kafka.errors import MissingExtraError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.registered.proto_compiler import protoc
from reactive_kafka.formats.registered.proto_known import is_built_in, known_file, known_names
from reactive_kafka.formats.registered.schema_questions import Reference, Schema

MOST_INDEXES = 100
"""How deep messages may be nested."""


def protobuf() -> Any:
    """Import the modules of ``google.protobuf`` that are used here, and return the package."""
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
    """Return whether it is a generated class."""
    return isinstance(kind, type) and hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


@lru_cache(maxsize=1024)
def schema_of_file(file: Any) -> Schema:
    """Return the schema of a file descriptor. The subject of an import is the import's name.

    Files that every reader has (:mod:`.proto_known`) are left out. A file that several others
    import is one schema, which they share.
    """
    proto = protobuf().descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    proto.ClearField("source_code_info")
    references = tuple(
        Reference(imported.name, imported.name, 0, schema_of_file(imported))
        for imported in file.dependencies
        if not is_built_in(imported.name)
    )
    return Schema("PROTOBUF", text_of(proto.SerializeToString(deterministic=True)), references)


def text_of(descriptor: bytes) -> str:
    """Return a serialized file as text, in the form in which clients register it."""
    return base64.standard_b64encode(descriptor).decode()


def is_serialized(text: str) -> bool:
    """Return whether a schema is a serialized file, which needs no compiler."""
    library = protobuf()
    try:
        data = base64.b64decode(text, validate=True)
        return bool(library.descriptor_pb2.FileDescriptorProto.FromString(data))
    except (binascii.Error, ValueError, library.message.DecodeError):
        return False


def file_of(schema: Schema) -> Any:
    """Return the file descriptor of a schema whose texts are serialized files.

    Raises:
        FormatError: It imports a file that it does not refer to, and that is not built in.
        Exception: A text is not a serialized file.
    """
    library = protobuf()
    pool = library.descriptor_pool.DescriptorPool()
    referred_to = _referred_to(schema)
    # The schema itself comes last, after what it imports. It has no name.
    for name, text in {**referred_to, "": schema.text}.items():
        data = base64.b64decode(text, validate=True)
        proto = library.descriptor_pb2.FileDescriptorProto.FromString(data)
        proto.name = name or "the schema.proto"
        for needed in proto.dependency:
            if needed not in referred_to:
                _add_known(pool, needed)
        pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName("the schema.proto")


def _referred_to(schema: Schema) -> dict[str, str]:
    """Return name -> text of the references.

    Built-in files are left out: our copies of them are always used.
    """
    return {name: text for name, text in schema.texts().items() if not is_built_in(name)}


def _add_known(pool: Any, name: str) -> None:
    """Add a built-in file and its imports to a pool."""
    file = known_file(name)
    if file is None:
        raise FormatError(f"it imports {name!r}, and has no reference to it")
    for needed in file.dependency:
        _add_known(pool, needed)
    pool.AddSerializedFile(file.SerializeToString())


def message_at(file: Any, indexes: Sequence[int]) -> Any:
    """Return the descriptor of a message.

    Raises:
        IndexError: There is no message at these indexes.
    """
    # The dict has the messages in the order of the file.
    messages = list(file.message_types_by_name.values())
    message = None
    for index in indexes:
        if index < 0:
            raise IndexError
        message = messages[index]
        messages = list(message.nested_types)
    if message is None:
        raise IndexError
    return message


def indexes_of(descriptor: Any) -> list[int]:
    """Return the place of a message in its file."""
    indexes: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        if outer is None:
            siblings = descriptor.file.message_types_by_name.values()
        else:
            siblings = outer.nested_types
        names = [sibling.full_name for sibling in siblings]
        indexes.insert(0, names.index(descriptor.full_name))
        descriptor = outer
    return indexes


def class_of(descriptor: Any) -> Any:
    """Return a class for a message that has no generated one."""
    return protobuf().message_factory.GetMessageClass(descriptor)


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return indexes as clients write them. Those of the first message are a single zero."""
    if list(indexes) == [0]:
        return b"\0"
    # Clients write zigzag varints. For numbers from 0 on these are twice the number.
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def read_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Read the indexes that begin at *start*.

    Returns:
        The indexes, and where they end.

    Raises:
        ValueError, IndexError: There are none.
    """
    count, position = _read_varint(value, start)
    if not 0 <= count <= MOST_INDEXES:
        raise ValueError
    indexes = []
    for _ in range(count):
        index, position = _read_varint(value, position)
        indexes.append(index)
    return tuple(indexes) or (0,), position


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _read_varint(value: bytes, start: int) -> tuple[int, int]:
    """Read a zigzag varint, and return it and where it ends."""
    position = start
    number = 0
    shift = 0
    while True:
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        if shift > 63:
            raise ValueError


def compiled(file: str) -> Any:
    """Compile a ``.proto`` file, and return its file descriptor.

    Imports are looked for in the folder of the file, then in each folder above.

    Raises:
        FormatError: There is no such file, or protoc refuses it. The text says why.
    """
    # Path.resolve() would follow links. The file of a mounted ConfigMap is a link to another
    # folder, which does not have its imports.
    path = Path(os.path.abspath(file))  # noqa: PTH100
    if not path.is_file():
        raise FormatError(f"{file} cannot be read: there is no such file")
    try:
        return _compiled([path.parent, *path.parent.parents], path.name, {})
    except FormatError as error:
        raise FormatError(f"protoc does not accept {file} as a .proto file: {error}") from None


def compiled_text(schema: Schema) -> str:
    """Compile the ``.proto`` text of a schema, and return the serialized file as text.

    The schema's references are serialized files already.

    Raises:
        FormatError: As :func:`compiled`.
    """
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-") as folder:
        Path(folder, "the_schema.proto").write_text(schema.text, encoding="utf-8")
        file = _compiled([Path(folder)], "the_schema.proto", _referred_to(schema))
        return text_of(file.serialized_pb)


def _compiled(roots: list[Path], name: str, referred_to: dict[str, str]) -> Any:
    library = protobuf()
    given = library.descriptor_pb2.FileDescriptorSet()
    for imported, text in referred_to.items():
        proto = given.file.add()
        proto.MergeFromString(base64.b64decode(text, validate=True))
        proto.name = imported
    missing = None
    for known in known_names():
        if known in referred_to:
            continue
        try:
            given.file.append(known_file(known))
        except MissingExtraError as error:
            # The file may not need it.
            missing = error
    try:
        files = protoc(roots, name, given)
    except FormatError as error:
        if missing is not None and "google/type/" in str(error):
            raise missing from error
        raise
    pool = library.descriptor_pool.DescriptorPool()
    # Protoc returns imports before the files that need them.
    for proto in files.file:
        pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName(name)


def messages_of(file: Any) -> Iterator[Any]:
    """Yield the messages of a file. Nested messages come after the outer ones."""
    todo = list(file.message_types_by_name.values())
    while todo:
        message = todo.pop(0)
        yield message
        todo += message.nested_types
