"""Whatever is written in whatever order, a store does what the one rule says: memory and SQLite,
against a dict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore, Write, allows
from reactive_kafka.checkpoint.stores.files import FileStore
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore
from reactive_kafka.checkpoint.stores.sql import SqlStore

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]

positions = st.none() | st.integers(0, 3)
checkpoints = st.builds(
    Checkpoint, st.integers(1, 3), positions, st.sampled_from([None, "", "s"]), st.just("m")
)
writes = st.builds(Write, st.integers(0, 3), checkpoints, positions)
calls = st.lists(
    st.dictionaries(st.sampled_from(PARTITIONS), writes, min_size=1), min_size=1, max_size=12
)


@given(st.none() | checkpoints, writes)
def test_the_rule_lets_no_zombie_no_late_write_and_no_step_back_through(
    stored: Checkpoint | None, write: Write
) -> None:
    """Row G6 of the faults."""
    if not allows(stored, write):
        return
    assert (stored.token if stored else 0) == write.expected
    assert (stored.position if stored else None) == write.position
    if (
        stored is not None
        and stored.position is not None
        and write.checkpoint.token == stored.token
    ):
        assert (
            write.checkpoint.position is not None and write.checkpoint.position >= stored.position
        )


async def check(store: CheckpointStore, calls: Sequence[dict[TopicPartition, Write]]) -> None:
    model: dict[TopicPartition, Checkpoint] = {}
    for call in calls:
        refused = {
            partition
            for partition, write in call.items()
            if not allows(model.get(partition), write)
        }
        model |= {
            partition: write.checkpoint
            for partition, write in call.items()
            if partition not in refused
        }
        assert await store.write("g", call) == refused
        assert await store.read("g", PARTITIONS) == model
    await store.close()


@given(calls)
def test_memory_does_what_the_rule_says(calls: list[dict[TopicPartition, Write]]) -> None:
    asyncio.run(check(MemoryStore(), calls))


@pytest.mark.parametrize("kind", ["sqlite", "files"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=calls)
def test_sqlite_and_files_do_what_the_rule_says(
    kind: str, calls: list[dict[TopicPartition, Write]]
) -> None:
    # Spares the disk.
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / "offsets"
        asyncio.run(
            check(SqlStore(f"sqlite:///{path}") if kind == "sqlite" else FileStore(path), calls)
        )
