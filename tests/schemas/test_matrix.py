"""Every cell of formats x shapes x ways: it is right, or it is refused by name.

The cells are data: see :mod:`tests.schemas.cells`. The other side is Confluent's serialisers.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from reactive_kafka.errors import EncodeError
from tests.formats.refusals import refused_somewhere
from tests.schemas.cells import MAKERS, SHAPES, WITHOUT_FILE, Shape
from tests.schemas.codecs import World, message_of, path_of

CELLS = [
    pytest.param(shape, *cell, id=f"{name}-{'-'.join(cell)}")
    for name, shape in SHAPES.items()
    for cell in shape.cells()
]


def read(world: World, shape: Shape, annotation: Any) -> Any:
    """What Confluent's serialiser writes, as we read it."""
    return world.decode(annotation, shape.format, their_bytes(world, shape))


def their_bytes(world: World, shape: Shape) -> bytes:
    return world.their_bytes(shape.format, shape.file, shape.references, shape.theirs)


def written(world: World, shape: Shape, value: Any) -> bytes:
    return world.encode(shape.format, value, path_of(shape.file))


def their_value(shape: Shape) -> Any:
    """What Confluent's deserialiser is expected to make of what we write."""
    if shape.format == "protobuf":
        return ParseDict(shape.theirs, message_of(shape.file)())
    return shape.plain if shape.read_by_them is None else shape.read_by_them


def exactly(value: Any) -> Any:
    """A value with the type of everything in it: 1 is no 1.0, and True is no 1."""
    if isinstance(value, dict):
        return {key: exactly(one) for key, one in value.items()}
    if isinstance(value, list):
        return [exactly(one) for one in value]
    return type(value), value


@pytest.mark.parametrize(("shape", "way", "kind"), CELLS)
def test_a_value_comes_through_as_it_is_or_is_refused_by_name(
    shape: Shape, way: str, kind: str
) -> None:
    world = World()
    annotation, value = shape.wanted(kind)
    if (way, kind) in shape.refused:
        with refused_somewhere(shape.refused[way, kind]):
            _ = read(world, shape, annotation) if way == "read" else written(world, shape, value)
        return
    if way == "read":
        found = read(world, shape, annotation)
        assert exactly(found) == exactly(value)
    elif way == "back":
        found = world.decode(annotation, shape.format, written(world, shape, value))
        assert exactly(found) == exactly(value)
    else:
        data = written(world, shape, value)
        assert world.their_value(shape.format, shape.file, data) == their_value(shape)
        if shape.format == "avro":
            # a branch of a union shows in the bytes only
            assert data[5:] == their_bytes(world, shape)[5:]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.of is not None])
def test_an_instance_is_written_by_the_schema_of_its_class_or_refused_by_name(
    name: str, kind: str
) -> None:
    world, shape = World(), SHAPES[name]
    annotation, value = shape.wanted(kind)
    if name in WITHOUT_FILE:
        with pytest.raises(EncodeError, match=WITHOUT_FILE[name]):
            world.encode(shape.format, value)
        return
    data = world.encode(shape.format, value)
    assert exactly(world.decode(annotation, shape.format, data)) == exactly(value)
    assert world.their_value(shape.format, shape.file, data) == shape.plain
