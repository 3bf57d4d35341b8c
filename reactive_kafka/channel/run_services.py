"""What one run of an application gives to all of its channels. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.observe.events import Observer
from reactive_kafka.tasks import Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What the channels, jobs and sources of one run share."""

    connector: Connector
    clock: Clock
    observer: Observer
    # Starts background tasks. One that a channel owns fails that channel when it raises.
    tasks: Tasks
    # Called when a handler or a hook asks the process to end.
    exit: Callable[[BaseException], None]
