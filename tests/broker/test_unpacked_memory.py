"""A batch that unpacks to more than it may takes memory once, however often it is tried."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from reactive_kafka.broker.aiokafka.fetched.batch_reader import BatchReader
from reactive_kafka.broker.aiokafka.fetched.unpacking import TooLargeError, Unpacker
from reactive_kafka.errors import CorruptRecordError
from tests.broker.hazards.test_record_batches import PARTITION, Piece

MOST_BYTES = 16 << 20
TIMES = 12


def too_large() -> Piece:
    """A fetched piece with one gzip batch of a record that is larger than it may be."""
    builder = DefaultRecordBatchBuilder(2, 1, 0, -1, -1, -1, 4 * MOST_BYTES)
    builder.append(0, 1_700_000_000_000, None, bytes(2 * MOST_BYTES), [])
    return Piece(bytes(builder.build()), (), (0,), (0,), 1)


@contextmanager
def without_the_collector() -> Iterator[None]:
    """What lies in cycles stays: the collector does not see how much memory it takes."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def tried(piece: Piece) -> CorruptRecordError:
    """Read the piece once, as a poll does that is answered with it again; returns the error, which
    is kept.
    """
    reader = BatchReader(PARTITION, 0, piece.content, Unpacker(MOST_BYTES), None)
    assert reader.take(10) == []
    assert reader.pending_unpack is not None
    working = asyncio.get_running_loop().run_in_executor(None, reader.pending_unpack)
    working.add_done_callback(reader.finish_unpack)
    await asyncio.wait([working])
    del working
    try:
        reader.take(10)
    except CorruptRecordError as error:
        return error.with_traceback(None)
    raise AssertionError("it was read")


async def test_the_memory_of_a_batch_that_is_too_large_does_not_grow_with_each_attempt() -> None:
    piece, errors = too_large(), list[CorruptRecordError]()
    with without_the_collector():
        errors.append(await tried(piece))
        before = resident_bytes()
        for _ in range(TIMES):
            errors.append(await tried(piece))
        assert resident_bytes() - before < 3 * MOST_BYTES


async def test_an_error_of_a_batch_that_is_too_large_holds_no_frames() -> None:
    piece = too_large()
    reader = BatchReader(PARTITION, 0, piece.content, Unpacker(MOST_BYTES), None)
    assert reader.take(10) == []
    assert reader.pending_unpack is not None
    working = asyncio.get_running_loop().run_in_executor(None, reader.pending_unpack)
    await asyncio.wait([working])
    reader.finish_unpack(working)
    assert isinstance(reader._broken, TooLargeError)
    assert reader._broken.__traceback__ is None
