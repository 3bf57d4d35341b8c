"""Schemas of many files that import the same ones: the work grows with the files, not with the ways
that lead to them. In a tree of two files for each level there are 2 to the power of its height.
"""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from reactive_kafka.formats.registered.json_documents import loaded
from reactive_kafka.formats.registered.proto_files import file_of, schema_of_file
from reactive_kafka.formats.registered.schema_questions import IdOf
from tests.formats.reference_trees import HEIGHT, tree


def test_each_text_is_there_once_behind_those_that_it_needs() -> None:
    assert list(tree(HEIGHT).texts()) == [
        f"{side}{level}" for level in range(HEIGHT) for side in "ab"
    ]


def test_schemas_are_told_apart_and_found_again() -> None:
    schema = tree(HEIGHT)
    questions = {IdOf("orders", schema, True): 7}
    assert questions[IdOf("orders", schema, True)] == 7
    assert hash(tree(3)) == hash(tree(3))
    assert tree(3) == tree(3)
    assert tree(3) != tree(2)


def test_the_files_of_a_message_are_each_read_once() -> None:
    pool = DescriptorPool()
    below: list[str] = []
    for level in [*range(HEIGHT), "top"]:
        names = [f"shared-{side}{level}.proto" for side in "ab"]
        for name in names:
            file = FileDescriptorProto(name=name, syntax="proto3", dependency=below)
            pool.AddSerializedFile(file.SerializeToString())
        below = names
    schema = schema_of_file(pool.FindFileByName("shared-atop.proto"))
    assert len(schema.texts()) == 2 * HEIGHT
    assert len(file_of(schema).dependencies) == 2


def test_the_files_of_a_json_schema_are_each_read_once(tmp_path: Path) -> None:
    below: list[str] = []
    for level in [*range(HEIGHT), "top"]:
        names = [f"{side}{level}.json" for side in "ab"]
        for name in names:
            (tmp_path / name).write_text(
                json.dumps({"properties": {each: {"$ref": each} for each in below}})
            )
        below = names
    schema = loaded(str(tmp_path / "atop.json"))
    assert len(schema.texts()) == 2 * HEIGHT
