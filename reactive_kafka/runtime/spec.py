"""What a run of an application is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import Settings
from reactive_kafka.config.tables import CheckpointSettings
from reactive_kafka.handlers.hooks import HookSet
from reactive_kafka.handlers.spec import AppSpec
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.logs import LogObserver

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from reactive_kafka.spark.session.engine import SparkEngine


OpenStore = Callable[[CheckpointSettings], CheckpointStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a run is made from, and what it runs on.

    Attributes:
        connector: None, as for ``spark``: what the settings say.
        open_store: Opens the checkpoint stores; None: by their URLs.
        exit_on_failure: The first channel that fails, and does not restart by itself, ends the run with 1.
    """

    settings: Settings
    app: AppSpec
    hooks: HookSet
    asgi: Callable[[], Starlette]
    clock: Clock
    observer: Observer
    log: LogObserver
    connector: Connector | None = None
    spark: SparkEngine | None = None
    open_store: OpenStore | None = None
    exit_on_failure: bool = False
