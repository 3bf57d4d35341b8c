"""A Spark batch in one line of text, for the log, the page and the terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reactive_kafka.observe.facts import SparkBatchFacts

RANGES_NAMED = 3


def short_id(batch_id: str) -> str:
    """The first digits of a batch's id: enough for people to tell it from its neighbours."""
    return batch_id[:4]


def whole_seconds(seconds: float) -> str:
    """``12s``, ``3m05s``, ``10m``, ``2h``, ``1h01m``; seconds are left out from an hour on."""
    whole = int(seconds)
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{whole}s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
    return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"


def count_of(number: int, what: str = "record") -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {what}{'s' * (number != 1)}"


def ranges_text(ranges: Sequence[object], most: int = RANGES_NAMED) -> str:
    """``clicks-0 [100, 50100), clicks-1 [7, 9), ...``: the first *most* of them."""
    return ", ".join(map(str, ranges[:most])) + (", ..." if len(ranges) > most else "")


def progress_text(batch: SparkBatchFacts) -> str:
    """``50000 records, stage 1/2, tasks 5/8 (2 running, 0 failed), 12s of 10m, attempt 1``."""
    is_too_long = ", being cancelled" if batch.since_s > batch.timeout_s else ""
    return (
        f"{count_of(batch.records)}, stage {current_stage(batch)}/{batch.stages}, "
        f"tasks {batch.tasks_done}/{batch.tasks} ({batch.tasks_active} running, {batch.tasks_failed} failed), "
        f"{whole_seconds(batch.since_s)} of {whole_seconds(batch.timeout_s)}{is_too_long}, attempt {batch.attempt}"
    )


def share_done(batch: SparkBatchFacts) -> float:
    """The share of a batch's work that is done, for bars: from 0 to 1."""
    if batch.share is not None:
        return batch.share
    return min(batch.tasks_done, batch.tasks) / max(1, batch.tasks)


def current_stage(batch: SparkBatchFacts) -> int:
    """The running stage, counted from 1; 0 while Spark knows of none."""
    return min(batch.stages_done + 1, batch.stages)
