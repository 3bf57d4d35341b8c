"""Waits for the schema registry, for values that cannot be encoded before it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from reactive_kafka.errors import ChannelClosedError, SchemaAwayError
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.verdicts.ageing import not_ageing

T = TypeVar("T")


async def once_known(
    make: Callable[[], T], missing: SchemaMissing, timeout_s: float | None = None
) -> T:
    """Call *make* again when the registry has answered, and return its result.

    Args:
        make: Raises SchemaMissing while a schema is not known.
        missing: What its last call has raised.
        timeout_s: How long to wait in all, in seconds; None: for as long as it takes.

    Raises:
        SchemaAwayError: There is no answer after *timeout_s*.
        ChannelClosedError: The application has stopped.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while True:
        waiter = missing.arrives()
        try:
            left_s = None if deadline is None else max(0.0, deadline - loop.time())
            with not_ageing():
                answered, _ = await asyncio.wait([waiter], timeout=left_s)
            if not answered:
                raise SchemaAwayError(f"not sent within {timeout_s:g} s: {missing.why()}")
            if not waiter.result():
                raise ChannelClosedError(f"{missing.ask}: the application has stopped")
        finally:
            waiter.cancel()
        try:
            return make()
        except SchemaMissing as another:
            missing = another
