"""Finds what a command is about: the App that ``module:app`` names, or briefly why there is none,
and the brokers.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import reduce, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

from reactive_kafka.app import App
from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.broker.kafka_connector import EMBEDDED, KafkaConnector
from reactive_kafka.cli import options
from reactive_kafka.cli.errors import Failure, WrongUsage
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError, MissingExtraError, describe
from reactive_kafka.records import TopicPartition

_config = options.config(
    "Configuration file with the brokers, and with the channels that keep positions in a store. Default: "
    "$REACTIVE_KAFKA_CONFIG, or ./reactive-kafka.toml."
)
_app = click.option(
    "--app",
    metavar="MODULE:APP",
    help="The application, if its configuration is not only in a file.",
)
_servers = options.servers("Brokers to ask, without a configuration.")
_CONNECTION = ("bootstrap_servers", "security_protocol", "request_timeout_ms")


def load_app(target: str, folder: Path) -> App:
    """The App that *target* names (``shop.billing:service.app``); its module is looked for in
    *folder* first.

    WrongUsage: the module or the attribute is not there, is something else, or fails when it is
    imported.
    """
    name, _, attribute = target.partition(":")
    if name.endswith(".py"):
        right = ".".join(Path(name).with_suffix("").parts)
        raise click.UsageError(
            f"{target!r} names a file; name its module: {right}:{attribute or 'app'}"
        )
    if not name or not attribute:
        raise click.UsageError(
            f"{target!r}: expected module:attribute, as in {name or 'billing'}:{attribute or 'app'}"
        )
    module = load_module(name, folder)
    try:
        app = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        # Built into Python: none; a folder without __init__.py: None.
        path = getattr(module, "__file__", None)
        where = f" ({path})" if path else ""
        raise WrongUsage(f"{name}{where} has no {attribute!r}{_apps_there(module)}") from None
    except Exception as error:
        # Of a property, or of the module's own __getattr__.
        raise WrongUsage(f"{target} cannot be looked up: {_cause(error)}") from error
    if not isinstance(app, App):
        kind = type(app).__name__
        raise WrongUsage(f"{target} is not an App but of type {kind!r}{_apps_there(module)}")
    return app


def load_module(name: str, folder: Path) -> ModuleType:
    """The module, looked for in *folder* first; WrongUsage: it is not there, or fails when it is
    imported.
    """
    here = str(folder.resolve())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (ConfigError, MissingExtraError):
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise WrongUsage(
                f"there is no module {error.name!r} in {here}{_meant(error.name, folder)}"
            ) from error
        raise WrongUsage(f"{name} cannot be imported: {_cause(error)}") from error
    except Exception as error:
        # Whatever the user's module does at its import: reported in short, with its place.
        raise WrongUsage(f"{name} cannot be imported: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """The error, and the line of the user's code that it comes from."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    machinery = (__file__, importlib.__file__)
    names = ((frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    frames = [
        f" ({name}:{line})"
        for name, line in names
        if not name.startswith("<frozen") and name not in machinery
    ]
    return f"{describe(error)}{frames[-1] if frames else ''}"


def _meant(name: str, folder: Path) -> str:
    close = difflib.get_close_matches(name, sorted(path.stem for path in folder.glob("*.py")), 1)
    return f"; did you mean {close[0]!r}?" if close else "; --app-dir names another folder"


def _apps_there(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not names:
        return f"; there is no App in {module.__name__}"
    return f"; did you mean {' or '.join(f'{module.__name__}:{name}' for name in names)}?"


class Where(NamedTuple):
    """What the command line says about the brokers, by the names of its options."""

    config: tuple[Path, ...] | None
    app: str | None
    app_dir: Path
    bootstrap_servers: str | None


def with_where(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where the brokers are; it gets them as *where*."""

    @wraps(command)
    def called(**given: Any) -> None:
        where = Where(*[given.pop(name) for name in Where._fields])
        command(where=where, **given)

    return _config(_app(options.app_dir(_servers(called))))


def _connect() -> Callable[[str], Connector]:
    """Makes the connector of Kafka's own client, or what a test has set as the command's
    ``obj``.
    """
    given: Callable[[str], Connector] | None = click.get_current_context().obj
    return given or KafkaConnector


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers that a command works with."""

    servers: str
    # Of every client: connection and credentials, under aiokafka's names.
    properties: Mapping[str, Any]
    # The incoming ones of the configuration; empty without one.
    channels: tuple[IncomingSettings, ...] = ()
    connect: Callable[[str], Connector] = field(default_factory=_connect)

    @asynccontextmanager
    async def clients(self, **further: object) -> AsyncIterator[tuple[Connector, Inspector]]:
        """A connector, and a started inspector with *further* properties; both are closed at the
        end.
        """
        connector = self.connect(self.servers)
        try:
            async with inspecting(connector, {**self.properties, **further}) as inspector:
                yield connector, inspector
        finally:
            await connector.close()


def find_cluster(
    where: Where, client_of: Callable[[IncomingSettings], Mapping[str, Any] | None]
) -> Cluster:
    """The brokers that the command line names, else those of the configuration.

    *client_of* gives the raw client properties of a channel that the command is about; None: it is
    about others. Where it is about none, the connection of all of them is taken; Failure, if they
    have several.
    """
    if where.bootstrap_servers is not None:
        if where.config is not None or where.app is not None:
            raise click.UsageError("--bootstrap-servers goes without --config and --app")
        return Cluster(where.bootstrap_servers, {})
    if where.app is not None:
        settings = load_app(where.app, where.app_dir).configure(where.config)
    else:
        settings = read_settings(where.config, environ=os.environ).checked()
    channels = tuple(settings.incoming.values())
    clients = [client for client in map(client_of, channels) if client is not None]
    clients = clients or [channel.client for channel in channels] or [{}]
    found = [
        {"bootstrap_servers": settings.bootstrap_servers, **_connection_of(client)}
        for client in clients
    ]
    if any(one != found[0] for one in found):
        servers = ", ".join(sorted({str(one["bootstrap_servers"]) for one in found}))
        raise Failure(
            f"the channels of {settings.source} have several connections ({servers}), and none of them is for this: "
            "name the brokers with --bootstrap-servers, or another file with --config"
        )
    own = str(found[0].pop("bootstrap_servers"))
    check_reachable(own, settings.source)
    return Cluster(own, found[0], channels)


def _connection_of(client: Mapping[str, Any]) -> dict[str, Any]:
    """What of a channel's raw client properties says how to connect."""
    return {
        name: value
        for name, value in client.items()
        if name in _CONNECTION or name.startswith(("ssl_", "sasl_"))
    }


def check_reachable(servers: str, whose: str) -> None:
    """Raise Failure for the broker inside an application's process: no other process can ask it."""
    if servers == EMBEDDED:
        raise Failure(
            f'{whose} has bootstrap_servers = "embedded": that broker lives inside its process only'
        )


async def known_topics(inspector: Inspector, *topics: str) -> dict[str, list[TopicPartition]]:
    """topic -> its partitions, of the whole cluster; Failure: one of *topics* is not among them."""
    known = await inspector.topics()
    missing = [topic for topic in topics if topic not in known]
    if missing:
        raise Failure(
            f"unknown topic {', '.join(missing)}; the cluster has {', '.join(known) or 'none'}"
        )
    return known
