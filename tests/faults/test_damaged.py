"""Bytes of a log are flipped on the disk of its broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.cases import finish
from tests.faults.checker import Rules, check, report
from tests.faults.driver import until
from tests.faults.processes import cpu_s
from tests.faults.scenario import member, playing
from tests.harness.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

LOOKS_S = 5.0


class Batch(NamedTuple):
    """Where a batch stands in its segment, and the offset of its first record."""

    offset: int
    start: int
    end: int


def batches(segment: Path) -> Iterator[Batch]:
    """Of a file of a log.

    Source: the format of record batches: the first offset, 8 bytes, and the length of what follows,
    4 bytes.
    """
    data, at = segment.read_bytes(), 0
    while at < len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        yield Batch(offset, at, at + 12 + length)
        at += 12 + length


def flip(segment: Path, at: int) -> None:
    """Turn all bits of one byte; a second call turns them back."""
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


async def test_a_byte_that_is_flipped_on_disk_holds_up_its_partition_at_the_offset_that_is_named(
    tmp_path: Path,
) -> None:
    """Row F8 of the faults."""
    with KafkaCluster() as cluster:
        async with playing(cluster.bootstrap_servers, tmp_path, 3) as scenario:
            async with scenario.load.flowing(150):
                await until(lambda: len(scenario.load.sent) > 600, 30, "there is something to read")
            await asyncio.to_thread(cluster.terminate)
            segment = cluster.directory / "node1" / "data" / f"{scenario.topic}-0" / f"{0:020}.log"
            found = list(batches(segment))
            bad = found[len(found) // 2]
            flip(segment, bad.end - 1)
            await asyncio.to_thread(cluster.start_node, 1)

            life = member(scenario, "service", channel='ordering = "partition"').start()
            hurt = scenario.partitions[0]
            readable = {
                place for place in scenario.load.sent if place[0] != hurt or place[1] < bad.offset
            }
            assert 0 < bad.offset < max(offset for tp, offset in scenario.load.sent if tp == hurt)

            def done() -> set[tuple[tuple[str, int], int]]:
                return {(one.tp, one.offset) for one in life.events if one.kind == "end"}

            await until(
                lambda: done() == readable, 30, "all is handled that can be read", life.tail
            )
            lines, used = len(life.log.read_text().splitlines()), cpu_s(life.pid)
            began = asyncio.get_running_loop().time()
            polls = scenario.observer.polls
            await until(
                lambda: scenario.observer.polls > polls + 10 * LOOKS_S,
                60,
                "it is looked at for a while",
            )
            took = asyncio.get_running_loop().time() - began
            assert done() == readable, "something was handled that cannot be read"
            said = life.log.read_text()
            assert f"{scenario.topic}-0" in said and f"offset {bad.offset}" in said, said[-3000:]
            assert len(said.splitlines()) - lines <= 3 * took, "it floods its log"
            assert cpu_s(life.pid) - used < 0.5 * took, "it spins"
            assert (await life.health("/health/live"))[0] == 200

            await asyncio.to_thread(cluster.terminate)
            flip(segment, bad.end - 1)
            await asyncio.to_thread(cluster.start_node, 1)
            await until(
                lambda: done() == set(scenario.load.sent), 60, "the rest is handled", life.tail
            )
            await finish(scenario)
            evidence = await scenario.evidence()
    assert report(check(evidence, Rules(ordered=True))) == ""
