"""What a run of an application is made from: what it runs, on what, and when it ends by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import Connector
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import Settings
from reactive_kafka.config.tables import CheckpointSettings
from reactive_kafka.handlers.declared_hooks import DeclaredHooks
from reactive_kafka.handlers.dependencies.graph import Graph
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.planning.channel_plans import AppPlan

if TYPE_CHECKING:
    from reactive_kafka.http.handed_connections import HandedConnections
    from reactive_kafka.spark.session.spark_engine import SparkEngine


OpenStore = Callable[[CheckpointSettings], CheckpointStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run runs."""

    settings: Settings
    channels: AppPlan
    dependencies: Graph
    hooks: DeclaredHooks
    # The outgoing channels that app.emitter() was asked for. A live view: on_start hooks may ask
    # for more of them.
    emitters: Collection[str]
    # False: what is odd about the configuration is not logged at the start.
    logs_warnings: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """What a run runs on. Tests put their own things here."""

    clock: Clock
    observer: Observer
    log: LogObserver
    # None: the run connects to the brokers of its settings.
    connector: Connector | None = None
    # None: the run makes the Spark session of its settings.
    spark: SparkEngine | None = None
    # None: checkpoint stores are opened by their URLs.
    open_store: OpenStore | None = None
    # The HTTP connections of a worker, which come from its supervisor. None: the run listens.
    handed_connections: HandedConnections | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """When a run ends without being asked to."""

    # The first channel that fails, and does not restart by itself, ends the run with exit code 1.
    on_failure: bool = False
    # The run ends when everything that was there at its start is handled and committed.
    when_caught_up: bool = False
