"""What the bars of Spark batches in a terminal show, for tests of what they are drawn from."""

from __future__ import annotations

from typing import Any

from reactive_kafka.cli.spark_progress import bars


def share_of_bar(facts: Any, at: int) -> float:
    """The share that the bar of a running batch has; *at* counts the batches."""
    bar = list(bars([facts], 120).columns[1].cells)[at]
    share: float = bar.completed / bar.total
    return share
