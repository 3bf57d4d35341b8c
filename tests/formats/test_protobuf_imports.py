"""What a ``.proto`` file imports: what every reader has, what is in folders above, and what protoc
says of the rest.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common.protobuf import _init_pool
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import ChannelSchemas, FormatError, SchemaSource, decoder_for
from reactive_kafka.formats.registered.proto_compiler import protoc
from reactive_kafka.formats.registered.proto_files import (
    compiled,
    compiled_text,
    file_of,
    schema_of_file,
    text_of,
)
from reactive_kafka.formats.registered.proto_known import is_built_in, known_file, known_names
from reactive_kafka.formats.registered.schema_questions import ById, Reference, Schema
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer

PRICE = """syntax = "proto3";
package shop;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/money.proto";
option (confluent.file_meta).doc = "what things cost";
message Price {
  option (confluent.message_meta) = {tags: ["PUBLIC"], params: [{key: "a", value: "b"}]};
  string sku = 1 [(confluent.field_meta).doc = "stock keeping unit"];
  google.type.Money asked = 2;
  confluent.type.Decimal exact = 3;
}
"""
PLAIN = {
    "sku": "tea",
    "asked": {"currency_code": "EUR", "units": 9, "nanos": 950_000_000},
    "exact": {"value": b"\x03\xe3", "precision": 5, "scale": 2},
}
ALL_NAMES = [*known_names(), "google/protobuf/descriptor.proto", "google/protobuf/timestamp.proto"]


def confluents_pool() -> DescriptorPool:
    pool = DescriptorPool()
    _init_pool(pool)
    return pool


def price_class(folder: Path) -> Any:
    """The class of a price, on Confluent's own copies of what it imports."""
    file = folder / "price.proto"
    file.write_text(PRICE)
    pool = confluents_pool()
    pool.AddSerializedFile(compiled(str(file)).serialized_pb)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Price"))


def price(kind: Any) -> Any:
    made = kind(sku="tea")
    made.asked.currency_code, made.asked.units, made.asked.nanos = "EUR", 9, 950_000_000
    made.exact.value, made.exact.precision, made.exact.scale = b"\x03\xe3", 5, 2
    return made


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_record_whose_schema_imports_confluents_and_googles_common_types_is_read(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path, as_text: bool
) -> None:
    kind = price_class(tmp_path)
    if as_text:
        registry.add("orders-value", PRICE, "PROTOBUF")
        written = b"\0\0\0\0\1\0" + price(kind).SerializeToString()
    else:
        serializer = ProtobufSerializer(kind, confluent, {"use.deprecated.format": False})
        written = await serialized(serializer, price(kind))
    app = make_app("protobuf")
    seen: list[object] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send("orders", written)
        await test.settled()
    assert seen == [PLAIN]
    assert registry.subjects.keys() == {"orders-value"}


@pytest.mark.parametrize("from_file", [False, True])
async def test_what_is_built_in_is_not_registered_and_confluents_deserialiser_reads_the_record(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path, from_file: bool
) -> None:
    kind = price_class(tmp_path)
    app = make_app(
        "protobuf",
        outgoing={"schema": {"file": str(tmp_path / "price.proto")}} if from_file else None,
    )
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(PLAIN if from_file else price(kind))
        (record,) = test.records("out")
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False}, confluent)
    assert await serialized(read, record.value) == price(kind)
    assert registry.subjects.keys() == {"orders-out-value"}


@pytest.mark.parametrize("name", ALL_NAMES)
def test_each_built_in_file_can_be_imported(name: str) -> None:
    main = FileDescriptorProto(name="main.proto", syntax="proto3", dependency=[name])
    main.message_type.add(name="Main")
    file = file_of(Schema("PROTOBUF", text_of(main.SerializeToString())))
    assert [one.name for one in file.dependencies] == [name]


def test_proto_text_may_import_all_that_is_built_in() -> None:
    text = (
        'syntax = "proto3"; '
        + "".join(f'import "{name}"; ' for name in ALL_NAMES)
        + "message Main {}"
    )
    file = file_of(Schema("PROTOBUF", compiled_text(Schema("PROTOBUF", text))))
    assert sorted(one.name for one in file.dependencies) == sorted(ALL_NAMES)


@pytest.mark.parametrize("name", [name for name in known_names() if is_built_in(name)])
def test_a_built_in_file_is_the_one_that_confluents_serialisers_have(name: str) -> None:
    theirs = FileDescriptorProto()
    confluents_pool().FindFileByName(name).CopyToProto(theirs)
    ours = known_file(name)
    for one in (ours, theirs):
        one.ClearField("options")
        for message in one.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert ours == theirs


OTHER = FileDescriptorProto(name="google/type/money.proto", package="google.type", syntax="proto3")
OTHER.message_type.add(name="Coins")


@pytest.mark.parametrize("as_text", [False, True])
def test_a_built_in_file_wins_over_a_reference_of_its_name(tmp_path: Path, as_text: bool) -> None:
    reference = Reference(
        OTHER.name, "money", 1, Schema("PROTOBUF", text_of(OTHER.SerializeToString()))
    )
    if as_text:
        text = compiled_text(Schema("PROTOBUF", PRICE, (reference,)))
    else:
        (tmp_path / "price.proto").write_text(PRICE)
        text = schema_of_file(compiled(str(tmp_path / "price.proto"))).text
    file = file_of(Schema("PROTOBUF", text, (reference,)))
    asked = file.message_types_by_name["Price"].fields_by_name["asked"].message_type
    assert list(asked.fields_by_name) == ["currency_code", "units", "nanos"]


def test_a_file_that_needs_another_content_of_a_built_in_file_is_refused(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; import "google/type/money.proto"; message Price { google.type.Coins coins = 1; }'
    coins = 'syntax = "proto3"; package google.type; message Coins {}'
    written(tmp_path, {"price.proto": text, "google/type/money.proto": coins})
    source = SchemaSource(ChannelSchemas("orders"), "orders", file=str(tmp_path / "price.proto"))
    with pytest.raises(
        FormatError, match=r"price.proto does not fit the files that are built in .*Coins"
    ):
        decoder_for(dict, "protobuf", source)


def test_common_types_that_confluents_serialisers_lack_are_referred_to_and_read_without_a_reference() -> (
    None
):
    name = "google/type/interval.proto"
    main = FileDescriptorProto(name="main.proto", syntax="proto3", dependency=[name])
    main.message_type.add(name="Main")
    alone = Schema("PROTOBUF", text_of(main.SerializeToString()))
    written = schema_of_file(file_of(alone))
    assert [one.name for one in written.references] == [name]
    assert [one.name for one in file_of(written).dependencies] == [name]


def test_an_import_without_a_reference_is_named() -> None:
    main = FileDescriptorProto(name="main.proto", syntax="proto3", dependency=["shop/line.proto"])
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), Schema("PROTOBUF", text_of(main.SerializeToString())))
    decode = decoder_for(dict, "protobuf", SchemaSource(schemas, "orders"))
    assert decode is not None
    with pytest.raises(
        DecodeError, match=r"schema 1 .*: it imports 'shop/line.proto', and has no reference to it"
    ):
        decode(b"\0\0\0\0\1\0")


ORDER_V1 = """syntax = "proto3";
package acme.shop.v1;
import "acme/shop/v1/line.proto";
import "acme/common/id.proto";
import "beside.proto";
message Order { Line line = 1; acme.common.Id id = 2; acme.shop.v1.Beside beside = 3; }
"""
TREE = {
    "acme/shop/v1/order.proto": ORDER_V1,
    "acme/shop/v1/line.proto": 'syntax = "proto3"; package acme.shop.v1; message Line { string sku = 1; }',
    "acme/shop/v1/beside.proto": 'syntax = "proto3"; package acme.shop.v1; message Beside {}',
    "acme/common/id.proto": 'syntax = "proto3"; package acme.common; import "acme/common/kind.proto"; '
    "message Id { Kind kind = 1; }",
    "acme/common/kind.proto": 'syntax = "proto3"; package acme.common; enum Kind { NONE = 0; }',
}


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("is_relative", [False, True])
def test_imports_are_found_in_the_folders_above_under_the_names_that_they_are_imported_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    written(tmp_path, TREE)
    monkeypatch.chdir(tmp_path / "acme/shop")
    file = "v1/order.proto" if is_relative else str(tmp_path / "acme/shop/v1/order.proto")
    schema = schema_of_file(compiled(file))
    assert list(schema.texts()) == [
        "acme/shop/v1/line.proto",
        "acme/common/kind.proto",
        "acme/common/id.proto",
        "beside.proto",
    ]
    assert file_of(schema).message_types_by_name["Order"].full_name == "acme.shop.v1.Order"


def test_the_nearest_folder_that_has_an_import_counts(tmp_path: Path) -> None:
    line = 'syntax = "proto3"; package acme; message Line { string %s = 1; }'
    files = {"a/line.proto": line % "near", "line.proto": line % "far"}
    main = 'syntax = "proto3"; package acme; import "line.proto"; message Order { Line line = 1; }'
    written(tmp_path, files | {"a/order.proto": main})
    order = compiled(str(tmp_path / "a/order.proto")).message_types_by_name["Order"]
    assert list(order.fields_by_name["line"].message_type.fields_by_name) == ["near"]


FAULTS = {
    'syntax = "proto3"; message A { Foo x = 1; }': 'bad.proto:1:32: "Foo" is not defined',
    'syntax = "proto3";\nimport "gone.proto";': "gone.proto: File not found",
    "nonsense": "bad.proto:1:1: Expected top-level statement",
    'syntax = "proto3"; import "google/type/gone.proto";': "google/type/gone.proto: File not found",
}


@pytest.mark.parametrize("text", FAULTS)
def test_what_protoc_says_is_in_the_error_and_not_on_the_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "bad.proto"
    file.write_text(text)
    with pytest.raises(FormatError) as raised:
        compiled(str(file))
    assert f"protoc does not accept {file} as a .proto file: " in str(raised.value)
    assert FAULTS[text] in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_of_many_problems_five_are_named(tmp_path: Path) -> None:
    fields = " ".join(f"Foo{n} x{n} = {n};" for n in range(1, 9))
    (tmp_path / "bad.proto").write_text(f'syntax = "proto3"; message A {{ {fields} }}')
    with pytest.raises(FormatError, match=r"Foo5. is not defined \(and 3 more\)$"):
        compiled(str(tmp_path / "bad.proto"))


def test_a_warning_of_protoc_is_not_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written(
        tmp_path,
        {
            "unused.proto": 'syntax = "proto3";',
            "a.proto": 'syntax = "proto3"; import "unused.proto";',
        },
    )
    compiled(str(tmp_path / "a.proto"))
    assert capfd.readouterr() == ("", "")


def test_modules_in_the_folder_of_a_schema_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, {"re.py": "raise SystemExit(9)", "a.proto": 'syntax = "proto3";'})
    monkeypatch.chdir(tmp_path)
    assert len(protoc([tmp_path], "a.proto", FileDescriptorSet()).file) == 1


async def test_why_a_registrys_text_is_no_schema_is_in_the_reason_of_the_letter(
    registry: RegistryServer,
) -> None:
    registry.add("orders-value", 'syntax = "proto3"; message A { Foo x = 1; }', "PROTOBUF")
    app = make_app("protobuf", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        raise AssertionError("it cannot be read")

    async with running(app, registry) as test:
        await test.send("orders", b"\0\0\0\0\1\0")
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    assert b'the_schema.proto:1:32: "Foo" is not defined' in (
        dict(letter.headers)["dead-letter-reason"] or b""
    )
    assert letter.value == b"\0\0\0\0\1\0"


WITHOUT_COMMON_TYPES = """
import sys
sys.modules["google.type"] = None
from reactive_kafka.errors import MissingExtraError
from reactive_kafka.formats.registered.proto_files import compiled
compiled(sys.argv[1])
try:
    compiled(sys.argv[2])
except MissingExtraError as error:
    print(error)
"""


def test_without_the_package_of_googles_common_types_only_schemas_that_import_them_are_refused(
    tmp_path: Path,
) -> None:
    plain = 'syntax = "proto3"; import "confluent/meta.proto"; message Order {}'
    written(tmp_path, {"plain.proto": plain, "price.proto": PRICE})
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT_COMMON_TYPES,
            str(tmp_path / "plain.proto"),
            str(tmp_path / "price.proto"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "pip install '.[protobuf]'" in ended.stdout, ended.stderr
