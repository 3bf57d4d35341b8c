"""What a run of an application is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import Settings
from reactive_kafka.handlers.hooks import HookSet
from reactive_kafka.handlers.spec import AppSpec
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.runtime.build import OpenStore

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from reactive_kafka.spark.session.engine import SparkEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an application runs on; None: what its settings say.

    Attributes:
        open_store: Opens the checkpoint stores.
    """

    clock: Clock
    observer: Observer
    log: LogObserver
    connector: Connector | None = None
    spark: SparkEngine | None = None
    open_store: OpenStore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a run is made from.

    Attributes:
        exit_on_failure: The first channel that fails, and does not restart by itself, ends the run with 1.
    """

    settings: Settings
    app: AppSpec
    hooks: HookSet
    asgi: Callable[[], Starlette]
    surroundings: Surroundings
    exit_on_failure: bool = False
