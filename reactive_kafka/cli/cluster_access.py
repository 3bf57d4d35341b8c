"""The brokers that a command works with, as its options or a configuration name them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.broker.kafka_connector import EMBEDDED, KafkaConnector
from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_app
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.config.client_properties import connection_of
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings

_config = options.config(
    "Configuration file with the brokers, and with the channels that keep positions in a store. "
    "Default: $REACTIVE_KAFKA_CONFIG, or ./reactive-kafka.toml."
)
_app = click.option(
    "--app",
    metavar="MODULE:APP",
    help="The application, if its configuration is not only in a file.",
)
_servers = options.servers("Brokers to ask, without a configuration.")


class BrokerOptions(NamedTuple):
    """The options that say which brokers to ask. Each field has the name of its option."""

    config: tuple[Path, ...] | None
    app: str | None
    app_dir: Path
    bootstrap_servers: str | None


def with_broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`BrokerOptions`; it gets them as *brokers*."""

    @wraps(command)
    def called(**given: Any) -> None:
        brokers = BrokerOptions(*[given.pop(name) for name in BrokerOptions._fields])
        command(brokers=brokers, **given)

    return _config(_app(options.app_dir(_servers(called))))


def with_application_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``[MODULE:APP]`` and the options that name a configuration or the brokers.

    The command gets them as *brokers*.
    """

    @wraps(command)
    def called(**given: Any) -> None:
        brokers = BrokerOptions(
            config=given.pop("config"),
            app=given.pop("target"),
            app_dir=given.pop("app_dir"),
            bootstrap_servers=given.pop("bootstrap_servers"),
        )
        command(brokers=brokers, **given)

    return options.maybe_target(options.app_config(options.app_dir(_servers(called))))


def with_configuration_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``[MODULE:APP]`` and the options that name a configuration.

    The command gets them as *brokers*.
    """

    @wraps(command)
    def called(**given: Any) -> None:
        brokers = BrokerOptions(
            config=given.pop("config"),
            app=given.pop("target"),
            app_dir=given.pop("app_dir"),
            bootstrap_servers=None,
        )
        command(brokers=brokers, **given)

    return options.maybe_target(options.app_config(options.app_dir(called)))


def _connector_factory() -> Callable[[str], Connector]:
    """Return the maker of connectors: Kafka's own, or what a test set as the command's ``obj``."""
    given: Callable[[str], Connector] | None = click.get_current_context().obj
    return given or KafkaConnector


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How a command reaches a cluster."""

    servers: str
    # Connection and credentials of every client, under aiokafka's names.
    properties: Mapping[str, Any]
    # The incoming channels of the configuration; empty without one.
    channels: tuple[IncomingSettings, ...] = ()
    connect: Callable[[str], Connector] = field(default_factory=_connector_factory)
    # The whole configuration; None without one.
    settings: Settings | None = None

    @asynccontextmanager
    async def clients(
        self, **more_properties: object
    ) -> AsyncIterator[tuple[Connector, Inspector]]:
        """Open a connector and a started inspector; both are closed at the end."""
        connector = self.connect(self.servers)
        try:
            async with inspecting(connector, {**self.properties, **more_properties}) as inspector:
                yield connector, inspector
        finally:
            await connector.close()


def find_cluster(
    brokers: BrokerOptions,
    client_of: Callable[[IncomingSettings], Mapping[str, Any] | None] = lambda _: None,
    client_of_outgoing: Callable[[OutgoingSettings], Mapping[str, Any] | None] = lambda _: None,
) -> ClusterAccess:
    """Return the brokers that the command line names, else those of the configuration.

    Args:
        brokers: What the command line says.
        client_of: Returns the raw client properties of a channel that the command is about, and
            None for other channels. If no channel counts, all of them do.
        client_of_outgoing: The same for outgoing channels.

    Raises:
        CommandFailed: The channels that count have several connections.
    """
    if brokers.bootstrap_servers is not None:
        if brokers.config is not None or brokers.app is not None:
            raise click.UsageError(
                "--bootstrap-servers cannot be combined with a configuration: --config, --app, or "
                "MODULE:APP"
            )
        return ClusterAccess(brokers.bootstrap_servers, {})
    return cluster_of_settings(settings_of(brokers), client_of, client_of_outgoing)


def settings_of(brokers: BrokerOptions) -> Settings:
    """Return the configuration that the command line names."""
    if brokers.app is not None:
        return load_app(brokers.app, brokers.app_dir).configure(brokers.config)
    return read_settings(brokers.config, environ=os.environ).checked()


def cluster_of_settings(
    settings: Settings,
    client_of: Callable[[IncomingSettings], Mapping[str, Any] | None] = lambda _: None,
    client_of_outgoing: Callable[[OutgoingSettings], Mapping[str, Any] | None] = lambda _: None,
) -> ClusterAccess:
    """Return the brokers of a configuration. See :func:`find_cluster`."""
    incoming = tuple(settings.incoming.values())
    outgoing = tuple(settings.outgoing.values())
    of_command = [*map(client_of, incoming), *map(client_of_outgoing, outgoing)]
    clients = [client for client in of_command if client is not None]
    if not clients:
        clients = [channel.client for channel in incoming]
        clients += [channel.client for channel in outgoing]
    connections = [
        {"bootstrap_servers": settings.bootstrap_servers, **connection_of(client)}
        for client in clients or [settings.client]
    ]
    if any(connection != connections[0] for connection in connections):
        servers = ", ".join(sorted({str(each["bootstrap_servers"]) for each in connections}))
        raise CommandFailed(
            f"the channels of {settings.source} use several connections ({servers}), and none of "
            "them belongs to this: name the brokers with --bootstrap-servers, or another file with "
            "--config"
        )
    own_servers = str(connections[0].pop("bootstrap_servers"))
    check_reachable(own_servers, settings.source)
    return ClusterAccess(own_servers, connections[0], incoming, settings=settings)


def check_reachable(servers: str, source: str) -> None:
    """Raise CommandFailed if *source* names the embedded broker, which only its process reaches."""
    if servers == EMBEDDED:
        raise CommandFailed(
            f'{source} has bootstrap_servers = "embedded": only the process of the application '
            "can reach that broker"
        )
