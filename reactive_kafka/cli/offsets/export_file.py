"""The file that ``offsets export`` writes and ``offsets import`` reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.metadata.codec import LIMIT, units

FORMAT = "reactive-kafka offsets"
VERSION = 1


class Saved(NamedTuple):
    """The position of one partition."""

    partition: TopicPartition
    position: int
    # The string that is stored with it.
    metadata: str = ""
    # The encoded state of the application, if a store keeps the position.
    state: str | None = None


def written(group: str, at: datetime, positions: Iterable[Saved]) -> str:
    """Return the text of a file, sorted by partition; *at* is when the positions were read."""
    entries = []
    for partition, position, metadata, state in sorted(positions, key=attrgetter("partition")):
        entry = {**partition._asdict(), "position": position, "metadata": metadata}
        entries.append(entry if state is None else {**entry, "state": state})
    head = {
        "format": FORMAT,
        "version": VERSION,
        "group": group,
        "exported_at": at.isoformat(timespec="seconds"),
    }
    return json.dumps({**head, "positions": entries}, indent=2)


def read(text: str) -> list[Saved]:
    """Return the positions in the text of a file, sorted by partition.

    Raises:
        ValueError: The text is invalid. The error names the part.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(
            f'it has no "format": "{FORMAT}": only files of offsets export can be imported'
        )
    if document.get("version") != VERSION:
        raise ValueError(
            f"its version is {document.get('version')!r}, and this command knows {VERSION}"
        )
    entries = document.get("positions")
    if not isinstance(entries, list):
        raise ValueError("its positions are not a list")
    saved = sorted(
        (_saved(number, entry) for number, entry in enumerate(entries)), key=attrgetter("partition")
    )
    twice = {
        str(entry.partition)
        for entry, following in pairwise(saved)
        if entry.partition == following.partition
    }
    if twice:
        raise ValueError(f"{', '.join(sorted(twice))} is in it twice")
    return saved


def _saved(number: int, entry: Any) -> Saved:
    where = f"positions[{number}]"
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} is not an object")
    topic = entry.get("topic")
    metadata = entry.get("metadata", "")
    state = entry.get("state")
    if not isinstance(topic, str) or not topic:
        raise ValueError(f"{where}: topic = {topic!r} is not the name of a topic")
    if not isinstance(metadata, str) or units(metadata) > LIMIT:
        raise ValueError(f"{where}: metadata is not a string of at most {LIMIT} UTF-16 units")
    if state is not None and not isinstance(state, str):
        raise ValueError(f"{where}: state is not a string")
    partition = _whole_number(where, "partition", entry.get("partition"))
    position = _whole_number(where, "position", entry.get("position"))
    return Saved(TopicPartition(topic, partition), position, metadata, state)


def _whole_number(where: str, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{where}: {name} = {value!r} is not a whole number from 0 up")
    return value
