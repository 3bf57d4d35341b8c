"""What a run of an application is made from; and its settings, read and fitted to what was
decorated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.extras import check_connection, check_writing
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.config.load import ConfigSource, LoadedConfiguration, read_settings
from reactive_kafka.config.settings import Settings
from reactive_kafka.config.tables import CheckpointSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.calls import HookSet
from reactive_kafka.handlers.dependencies.depends import Factory
from reactive_kafka.handlers.dependencies.graph import Graph, needing
from reactive_kafka.handlers.registry import Registry
from reactive_kafka.handlers.spec import AppSpec
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.tracing.tracer import check_tracing

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from reactive_kafka.spark.session.spark_engine import SparkEngine


OpenStore = Callable[[CheckpointSettings], CheckpointStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What a run is made from, and what it runs on."""

    settings: Settings
    app: AppSpec
    # Of its dependencies.
    graph: Graph
    hooks: HookSet
    asgi: Callable[[], Starlette]
    clock: Clock
    observer: Observer
    log: LogObserver
    # None, as for spark: what the settings say.
    connector: Connector | None = None
    spark: SparkEngine | None = None
    # None: checkpoint stores are opened by their URLs.
    open_store: OpenStore | None = None
    # The outgoing channels that app.emitter() was asked for. A live view: on_start hooks may ask
    # for more of them.
    emitters: Collection[str] = ()
    # What is odd about the configuration is told at the start.
    tells_settings: bool = True
    # The first channel that fails, and does not restart by itself, ends the run with 1.
    exit_on_failure: bool = False
    # The run ends when what was there at its start is handled.
    until_end: bool = False


def configured(
    source: ConfigSource,
    environ: Mapping[str, str],
    overrides: Mapping[str, Any] | None,
    registry: Registry,
    hooks: HookSet,
) -> tuple[LoadedConfiguration, AppSpec]:
    """What the configuration says, and how everything decorated fits it; a ConfigError has all that
    is wrong.
    """
    reading = read_settings(source, environ=environ, overrides=overrides)
    settings = reading.settings
    problems = [*reading.problems, *hooks.misfits(settings)]
    # Values may be missing, so only what is named and signatures can be judged.
    if reading.problems:
        raise ConfigError(*problems, *registry.misfits(settings))
    try:
        spec = registry.spec(settings)
    except ConfigError as error:
        raise ConfigError(*problems, *error.problems) from None
    if problems:
        raise ConfigError(*problems)
    return reading, spec


def graph_of(spec: AppSpec, overrides: Mapping[Factory, Factory]) -> Graph:
    """The dependencies of an application, made by *overrides* where these say so. ConfigError: that
    cannot be.
    """
    channels = (*spec.incoming.values(), *spec.memory.values())
    graph = Graph(
        needing((handler for one in channels for handler in one.handlers), spec.sources), overrides
    )
    if graph.problems:
        raise ConfigError(*(f"app.dependency_overrides: {problem}" for problem in graph.problems))
    return graph


def check_extras(
    spec: AppSpec, settings: Settings, *, clients: bool, spark: bool, stores: bool
) -> None:
    """Check that what the channels need is installed.

    Args:
        clients: Whether the application makes its own clients of Kafka.
        spark: Whether it makes its own session.
        stores: Whether it opens its own checkpoint stores.

    Raises:
        MissingExtraError: A package is not installed.
        ConfigError: There is no Java that fits, or a store's URL cannot be opened.
    """
    check_tracing(settings.tracing)
    if clients:
        _check_clients(settings)
    on_spark = [channel.settings for channel in spec.incoming.values() if channel.spark is not None]
    if on_spark and spark:
        from reactive_kafka.spark.session.spark_engine import maker_for

        places = [
            one.place("spark.mode", "ranges") for one in on_spark if one.spark.mode == "ranges"
        ]
        maker_for(settings.spark, ranges=bool(places), places=places)
    if stores and any(channel.checkpoint for channel in settings.incoming.values()):
        from reactive_kafka.checkpoint.stores.opening import check_stores

        check_stores(settings.incoming.values())


def _check_clients(settings: Settings) -> None:
    for incoming in settings.incoming.values():
        where = f"[incoming.{incoming.name}]"
        check_connection(where, incoming.client)
        if incoming.dead_letter_queue is not None:
            check_writing(
                f"[incoming.{incoming.name}.dead_letter_queue]", incoming.dead_letter_queue.client
            )
        elif incoming.delayed_retry is not None:
            check_writing(where, incoming.client)
    for outgoing in settings.outgoing.values():
        check_writing(f"[outgoing.{outgoing.name}]", outgoing.client)
