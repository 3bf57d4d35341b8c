"""Files of Protobuf messages: from ``.proto`` text, generated classes or a registry, to classes of messages.

A registry's clients name a message by where it stands in its file: the number of the outermost message, then that of
one inside of it, and so on.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reactive_kafka.errors import MissingExtraError
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.registered.schemas import Reference, Schema

_GOOGLES = "google/protobuf/"
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
    """The schema of a file descriptor; what it imports, Google's own aside, goes to subjects of their names."""
    proto = protobuf().descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    proto.ClearField("source_code_info")
    references = tuple(
        Reference(one.name, one.name, 0, schema_of_file(one))
        for one in file.dependencies
        if not one.name.startswith(_GOOGLES)
    )
    return Schema("PROTOBUF", text_of(proto.SerializeToString(deterministic=True)), references)


def text_of(descriptor: bytes) -> str:
    """A serialized file as clients register it."""
    return base64.standard_b64encode(descriptor).decode()


def is_serialized(text: str) -> bool:
    """Whether a schema is a file that needs no compiler."""
    try:
        return bool(protobuf().descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True)))
    except (binascii.Error, ValueError, protobuf().message.DecodeError):
        return False


def file_of(schema: Schema) -> Any:
    """The file descriptor of a schema whose texts are serialized files; any error means that they are none."""
    found = protobuf()
    pool = found.descriptor_pool.DescriptorPool()
    for name, text in {**schema.texts(), "": schema.text}.items():
        proto = found.descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        proto.name = name or "the schema.proto"
        for needed in proto.dependency:
            _add_well_known(pool, needed)
        pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName("the schema.proto")


def _add_well_known(pool: Any, name: str) -> None:
    """Add a file of Google's own, and what it needs."""
    if not name.startswith(_GOOGLES):
        return
    found = protobuf()
    from google.protobuf import (  # noqa: F401  # each adds its file to the default pool
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

    file = found.descriptor_pool.Default().FindFileByName(name)
    for needed in file.dependencies:
        _add_well_known(pool, needed.name)
    pool.AddSerializedFile(file.serialized_pb)


def message_at(file: Any, indexes: Sequence[int]) -> Any:
    """The descriptor of a message; IndexError: there is none."""
    messages = list(file.message_types_by_name.values())  # in their order
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
        beside = descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
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
    """The indexes that stand at a place, and where they end; a ValueError or IndexError if none do."""
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
    """The file descriptor of a ``.proto`` file, which may import others from its folder.

    FormatError: protoc does not take it, and has said why on the standard error.
    """
    path = Path(file)
    if not path.is_file():
        raise FormatError(f"{file} cannot be read: there is no such file")
    return _run_protoc(path.parent, path.name)


def compiled_text(schema: Schema) -> str:
    """``.proto`` text, whose references are serialized files, as one itself; FormatError as in :func:`compiled`."""
    found = protobuf()
    imported = found.descriptor_pb2.FileDescriptorSet()
    for name, text in schema.texts().items():
        proto = imported.file.add()
        proto.MergeFromString(base64.b64decode(text, validate=True))
        proto.name = name
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-") as folder:
        Path(folder, "the_schema.proto").write_text(schema.text)
        Path(folder, "imported").write_bytes(imported.SerializeToString())
        inside = [f"--descriptor_set_in={Path(folder, 'imported')}"] if imported.file else []
        return text_of(_run_protoc(Path(folder), "the_schema.proto", *inside).serialized_pb)


def _run_protoc(folder: Path, name: str, *more: str) -> Any:
    try:
        import grpc_tools
        from grpc_tools import protoc
    except ImportError as error:
        raise MissingExtraError("reading .proto files", "protobuf") from error
    found = protobuf()
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-") as out:
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        set_file = Path(out, "set")
        arguments = ["protoc", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={set_file}", *more]
        if protoc.main([*arguments, "--include_imports", str(folder / name)]):
            raise FormatError(f"{folder / name} is no .proto file that protoc takes")
        files = found.descriptor_pb2.FileDescriptorSet.FromString(set_file.read_bytes())
    pool = found.descriptor_pool.DescriptorPool()
    for proto in files.file:  # protoc has put what others import before them
        pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName(name)


def messages_of(file: Any) -> Iterator[Any]:
    """The messages of a file, those inside of others behind these."""
    todo = list(file.message_types_by_name.values())
    while todo:
        message = todo.pop(0)
        yield message
        todo += message.nested_types
