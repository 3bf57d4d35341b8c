"""Jobs as an application declares them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from reactive_kafka.handlers.declared_jobs import DeclaredJob, JobOwner
from reactive_kafka.handlers.schedules import Every


def job_of_orders(function: Callable[[], Awaitable[None]], interval_s: float) -> DeclaredJob:
    """A job of the owner of partition 0 of orders, with ``@app.every``."""
    owner = JobOwner("orders", None, 0)
    return DeclaredJob("@app.every", function, lambda: Every(interval_s), owner)
