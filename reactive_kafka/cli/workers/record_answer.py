"""Where a record is, made from the answers of all workers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

_NOT_HERE = "elsewhere"


def merged_record(answers: Sequence[tuple[int, Json]]) -> dict[str, Any]:
    """Return one answer to ``GET /api/record``: of each channel that of the worker that knows.

    A worker knows if it has the partition, or remembers something of the record.

    Args:
        answers: The number of each worker that has found a channel, and its answer.
    """
    _, first = answers[0]
    channels: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, answer in answers:
        for channel in answer["channels"]:
            name = channel["channel"]
            rank = _rank(channel)
            if name not in channels or rank > channels[name][0]:
                channels[name] = (rank, {**channel, "worker": number})
    return {**first, "channels": [channel for _, channel in channels.values()]}


def _rank(channel: Json) -> int:
    if channel["place"] != _NOT_HERE:
        return 2
    return 1 if channel["past"] else 0
