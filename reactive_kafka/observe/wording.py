"""Counts, durations, ranges and Spark batches as short texts for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reactive_kafka.observe.facts import SparkBatchFacts

RANGES_NAMED = 3


def short_id(batch_id: str) -> str:
    """Return the first digits of a batch's id, enough for people to tell batches apart."""
    return batch_id[:4]


def whole_seconds(seconds: float) -> str:
    """Return ``12s``, ``3m05s``, ``10m``, ``2h``, ``1h01m``; from an hour on without seconds."""
    whole = int(seconds)
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{whole}s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
    return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"


def count_of(number: int, noun: str = "record") -> str:
    """Return ``1 record``, ``2 records``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(items: Sequence[object], most: int) -> str:
    """Return ``a, b and 3 more``: the first *most* items, and the number of the others."""
    text = ", ".join(map(str, items[:most]))
    more = len(items) - most
    return f"{text} and {more} more" if more > 0 else text


def and_more(text: str, more: int) -> str:
    """Return the text about one thing, with the number of others that it would say the same of."""
    return f"{text} ({more} more like it)" if more else text


def ranges_text(ranges: Sequence[object], most: int = RANGES_NAMED) -> str:
    """Return ``clicks-0 [100, 50100), clicks-1 [7, 9), ...``: the first *most* ranges."""
    text = ", ".join(map(str, ranges[:most]))
    return f"{text}, ..." if len(ranges) > most else text


def progress_text(batch: SparkBatchFacts) -> str:
    """Return one line about a running batch.

    Such as ``50000 records, stage 1/2, tasks 5/8 (2 running, 0 failed), 12s of 10m, attempt 1``.
    """
    is_too_long = ", being cancelled" if batch.since_s > batch.timeout_s else ""
    return (
        f"{count_of(batch.records)}, stage {current_stage(batch)}/{batch.stages}, "
        f"tasks {batch.tasks_done}/{batch.tasks} "
        f"({batch.tasks_active} running, {batch.tasks_failed} failed), "
        f"{whole_seconds(batch.since_s)} of {whole_seconds(batch.timeout_s)}{is_too_long}, "
        f"attempt {batch.attempt}"
    )


def share_done(batch: SparkBatchFacts) -> float:
    """Return the share of a batch's work that is done, from 0 to 1, for progress bars."""
    if batch.share is not None:
        return batch.share
    return min(batch.tasks_done, batch.tasks) / max(1, batch.tasks)


def current_stage(batch: SparkBatchFacts) -> int:
    """Return the number of the running stage, from 1, or 0 while Spark reports no stage."""
    return min(batch.stages_done + 1, batch.stages)
