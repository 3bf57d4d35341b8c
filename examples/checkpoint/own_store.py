"""Your own store: all rows in one file, with a lock for the members on this host.

An entry point tells reactive_kafka of it. In the ``pyproject.toml`` of the package that has it:

    [project.entry-points."reactive_kafka.checkpoint_stores"]
    onefile = "own_store:OneFileStore"

and in the configuration ``store = "onefile:///var/lib/shop/offsets.json"``.
"""

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from anyio import to_thread

from reactive_kafka import Checkpoint, StoreAwayError, TopicPartition
from reactive_kafka.checkpoint.store import Write, allows

Rows = dict[str, Checkpoint]


class OneFileStore:
    """Keeps ``group:topic:partition`` -> row as JSON. It blocks for a moment, so it works in
    threads.

    Args:
        url: As it is configured.
    """

    def __init__(self, url: str) -> None:
        self._path = Path(urlsplit(url).path)

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        """partition -> its row, where there is one."""
        rows = await to_thread.run_sync(self._read)
        return {one: rows[_key(group, one)] for one in partitions if _key(group, one) in rows}

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Write what the rows that are there allow; the others are refused."""
        return await to_thread.run_sync(self._write, group, writes)

    async def close(self) -> None:
        """Nothing stays open."""

    def _read(self) -> Rows:
        with self._locked():
            return self._load()

    def _write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        with self._locked():
            rows = self._load()
            refused = frozenset(
                one
                for one, write in writes.items()
                if not allows(rows.get(_key(group, one)), write)
            )
            rows |= {
                _key(group, one): write.checkpoint
                for one, write in writes.items()
                if one not in refused
            }
            self._save(rows)
        return refused

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            # The disk is full, or the folder is away: it is tried again.
            raise StoreAwayError(f"{self._path}: {error}") from error

    def _load(self) -> Rows:
        if not self._path.exists():
            return {}
        return {key: Checkpoint(*row) for key, row in json.loads(self._path.read_text()).items()}

    def _save(self, rows: Rows) -> None:
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(rows, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


def _key(group: str, partition: TopicPartition) -> str:
    return f"{group}:{partition.topic}:{partition.partition}"
