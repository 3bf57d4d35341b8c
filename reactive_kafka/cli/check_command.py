"""``reactive-kafka check``: check an application and its configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reactive_kafka.app import App
from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_app
from reactive_kafka.cli.console_text import counted
from reactive_kafka.cli.effective_settings import EffectiveSetting, effective_settings
from reactive_kafka.cli.errors import CommandFailed, WrongUsage
from reactive_kafka.config import keys
from reactive_kafka.config.collect import Collected, Setting
from reactive_kafka.config.dump import dump, spark_table
from reactive_kafka.config.load import toml_of_quarkus
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats.payload_type import name_of
from reactive_kafka.handlers.signature import Shape, name_of_handler
from reactive_kafka.planning.channel_plans import AppPlan, HandlerPlan, IncomingPlan

if TYPE_CHECKING:
    from reactive_kafka.cli.connect_report import ConnectReport
    from reactive_kafka.spark.batches.spark_function import SparkFunction

# Settings in the first line of a channel.
COMMON = ("bootstrap_servers", "topic", "topics", "pattern", "assign", "group_id")
# Settings without effect on a channel whose batches run on Spark.
FOR_HANDLERS = (
    "batch_max_records",
    "batch_max_bytes",
    "batch_max_wait",
    "concurrency",
    "value_deserializer",
    "key_deserializer",
)


@click.command(name="check", short_help="Check an application and its configuration.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@options.app_config
@options.properties(
    "Instead, print the TOML that a file of Quarkus means (application.properties, "
    "application.yaml). Exits with 2 if it has a problem."
)
@options.app_dir
@click.option("--strict", is_flag=True, help="Exit with 2 for warnings, too.")
@click.option("--all", "show_all", is_flag=True, help="Print settings with their default, too.")
@click.option(
    "--sources",
    is_flag=True,
    help="Print where each setting comes from: file and line, environment variable, code.",
)
@click.option(
    "--connect",
    is_flag=True,
    help="Also ask the brokers, the schema registry and the checkpoint stores. Exits with 1 if "
    "one of them, or a topic, is missing. Takes at most 10 seconds.",
)
@options.as_json("Print one JSON object, with all settings and their sources.")
def check(
    target: str | None,
    config: tuple[Path, ...] | None,
    from_quarkus: Path | None,
    app_dir: Path,
    strict: bool,
    show_all: bool,
    sources: bool,
    connect: bool,
    as_json: bool,
) -> None:
    """Check an application's configuration and handlers, without connecting.

    Prints each channel with its handler and the settings that differ from their defaults, and each
    source; secrets are masked. If anything is wrong, prints every problem with file and line, and
    exits with 2. Settings that have no effect, or are probably not meant, are warnings.

    \b
    Examples:
      reactive-kafka check billing:app
      reactive-kafka check billing:app --config prod.toml --strict
      reactive-kafka check billing:app --all --sources
      reactive-kafka check billing:app --connect
      reactive-kafka check --from-quarkus application.properties > reactive-kafka.toml
    """
    if from_quarkus is not None:
        if target is not None or config is not None:
            raise click.UsageError("--from-quarkus cannot be combined with MODULE:APP and --config")
        if as_json or connect or sources or show_all:
            raise click.UsageError(
                "--from-quarkus cannot be combined with --all, --sources, --connect and --json"
            )
        text, warnings = toml_of_quarkus(from_quarkus, os.environ)
        click.echo(text, nl=False)
        _refuse_warnings(len(warnings) if strict else 0)
        return
    if target is None:
        raise click.UsageError("Missing argument 'MODULE:APP'.")
    try:
        app = load_app(target, app_dir)
        app.configure(config)
    except (ConfigError, WrongUsage) as error:
        if as_json:
            found = error.problems if isinstance(error, ConfigError) else (error.message,)
            click.echo(json.dumps({"target": target, "problems": list(found)}, indent=2))
            raise SystemExit(2) from None
        raise
    checked = CheckedApp.of(app)
    connected = _connected(app) if connect else None
    missing = [] if connected is None else connected.problems
    if as_json:
        click.echo(json.dumps({"target": target, **checked.to_json(connected)}, indent=2))
    else:
        click.echo("\n".join(checked.report(show_all=show_all, sources=sources)))
        if connected is not None and connected.created:
            click.echo("\n" + "\n".join(connected.created))
    if missing:
        if as_json:
            raise SystemExit(1)
        lines = "\n".join(f"  - {line}" for line in missing)
        raise CommandFailed(
            f"{counted(len(missing), 'problem')} with what it connects to:\n{lines}"
        )
    if strict and as_json and checked.warnings:
        raise SystemExit(2)
    _refuse_warnings(len(checked.warnings) if strict else 0)
    if not as_json:
        click.echo(f"\n{target} is fine: {checked.counts()}")


def _connected(app: App) -> ConnectReport:
    """Return what the application would not find when it connects."""
    import asyncio

    from reactive_kafka.cli.connect_report import report_of

    return asyncio.run(report_of(app.settings, app.plan))


@dataclass(frozen=True, slots=True)
class CheckedApp:
    """An application that can be started, as ``check`` shows it."""

    settings: Settings
    plan: AppPlan
    tables: Mapping[str, Any]
    given: Collected
    app_warnings: tuple[str, ...]

    @classmethod
    def of(cls, app: App) -> CheckedApp:
        """Return the report on an application that has been configured."""
        app_warnings = list(app.plan.warnings)
        if app.declared.warning:
            app_warnings.append(app.declared.warning)
        # configure() has set it.
        assert app._reading is not None  # noqa: S101
        tables = _tables(app.settings, app.plan)
        return cls(app.settings, app.plan, tables, app._reading.given, tuple(app_warnings))

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings, those of the configuration first."""
        return (*self.settings.warnings, *self.app_warnings)

    def counts(self) -> str:
        """Return how many channels of each kind it has."""
        plan = self.plan
        found = [f"{len(plan.incoming)} incoming", f"{len(plan.outgoing)} outgoing"]
        if plan.sources:
            found.append(counted(len(plan.sources), "source"))
        if plan.memory:
            found.append(f"{len(plan.memory)} memory")
        return ", ".join(found)

    def channel(self, kind: str, name: str) -> list[EffectiveSetting]:
        """Return the settings of a channel."""
        own = self.given.named[kind].get(name)
        nearest: Mapping[str, Setting] = own.settings if own is not None else {}
        inherited = self.given.plain["kafka"].settings if kind != "memory" else {}
        section = keys.CHANNEL_SECTIONS[kind]
        return list(effective_settings(section, self.tables[kind][name], nearest, inherited))

    def of_section(self, name: str) -> list[EffectiveSetting]:
        """Return the settings of a table that is no channel's."""
        if name not in self.tables:
            return []
        written = self.given.plain[name].settings
        section = keys.PLAIN_SECTIONS[name]
        return list(effective_settings(section, self.tables[name], written))

    def to_json(self, connected: ConnectReport | None) -> dict[str, Any]:
        """Return everything, with all defaults."""
        plan = self.plan
        handlers = {
            "incoming": {
                name: [line.partition(" = ")[2] for line in _consumers(channel)]
                for name, channel in plan.incoming.items()
            },
            "memory": {
                name: [line.partition(" = ")[2] for line in _handlers(channel.handlers)]
                for name, channel in plan.memory.items()
            },
        }
        channels: dict[str, Any] = {}
        for kind, planned in (
            ("incoming", plan.incoming),
            ("outgoing", plan.outgoing),
            ("memory", plan.memory),
        ):
            channels[kind] = {}
            for name in planned:
                shown: dict[str, Any] = {"settings": _as_json(self.channel(kind, name))}
                if kind in handlers:
                    shown["handlers"] = handlers[kind][name]
                if kind != "incoming":
                    shown["from"] = _senders(name, plan)
                channels[kind][name] = shown
        sections = ("kafka", "http", "spark", "schema_registry", "tracing")
        return {
            "configuration": self.settings.source,
            **{name: _as_json(self.of_section(name)) for name in sections if name in self.tables},
            "channels": channels,
            "sources": {source.name: list(source.outgoing) for source in plan.sources},
            "warnings": list(self.warnings),
            "created": [] if connected is None else connected.created,
            "problems": [] if connected is None else connected.problems,
        }

    def report(self, *, show_all: bool, sources: bool) -> Iterator[str]:
        """Yield the lines for a terminal."""
        yield f"configuration  {self.settings.source}"
        for warning in self.settings.warnings:
            yield f"warning        {warning}"
        yield from self._head(sources=sources)
        yield from self._channels(show_all=show_all, sources=sources)
        for warning in self.app_warnings:
            yield f"\nwarning: {warning}"

    def _head(self, *, sources: bool) -> Iterator[str]:
        def source(section: str, *names: str) -> str:
            if not sources:
                return ""
            found = {each.name: each.source for each in self.of_section(section)}
            given = self.given.plain[section].settings
            places = [found.get(name) or _source_of(name, given) for name in names]
            return f"  # {', '.join(dict.fromkeys(places))}"

        http = self.tables["http"]
        spark = self.tables["spark"]
        servers = self.tables["kafka"]["bootstrap_servers"]
        yield f"brokers        {servers}{source('kafka', 'bootstrap_servers')}"
        if http["enabled"]:
            yield f"http           {http['host']}:{http['port']}{source('http', 'host', 'port')}"
        else:
            yield f"http           off{source('http', 'enabled')}"
        if any(channel.spark is not None for channel in self.plan.incoming.values()):
            yield f"spark          {spark.get('remote') or spark['master']}"

    def _channels(self, *, show_all: bool, sources: bool) -> Iterator[str]:
        tables = self.tables
        plan = self.plan
        servers = tables["kafka"]["bootstrap_servers"]

        def settings(kind: str, name: str) -> Iterator[str]:
            for setting in self.channel(kind, name):
                if setting.name in COMMON or (setting.is_default and not show_all):
                    continue
                source = f"  # {setting.source}" if sources else ""
                yield f"  {setting.name} = {_text(setting.value)}{source}"

        for name, channel in plan.incoming.items():
            table = tables["incoming"][name]
            yield f"\nincoming {name}: {_what_is_read(table)}{_own_brokers(table, servers)}"
            yield from _consumers(channel)
            yield from settings("incoming", name)
        for declared in plan.sources:
            targets = ", ".join(declared.outgoing)
            yield f"\nsource {declared.name}: sends what it yields to {targets}"
        for name in plan.outgoing:
            table = tables["outgoing"][name]
            yield f"\noutgoing {name}: topic {table['topic']}{_own_brokers(table, servers)}"
            yield f"  from = {_senders(name, plan) or 'no handler or source'}"
            yield from settings("outgoing", name)
        for name, memory in plan.memory.items():
            limit = tables["memory"][name]["max_in_flight"]
            yield f"\nmemory {name}: at most {limit} values in flight"
            yield f"  from = {_senders(name, plan) or 'app.emitter()'}"
            yield from _handlers(memory.handlers)


def _as_json(settings: Sequence[EffectiveSetting]) -> dict[str, Any]:
    return {setting.name: setting.to_json() for setting in settings}


def _source_of(name: str, given: Mapping[str, Setting]) -> str:
    """Return the source of a setting that the dump shows elsewhere."""
    setting = given.get(name)
    return "default" if setting is None else str(setting.origin)


def _tables(settings: Settings, spec: AppPlan) -> dict[str, Any]:
    """Return the effective settings as tables, with what the handlers add to them."""
    planned = {name: channel.settings for name, channel in spec.incoming.items()}
    tables = dump(replace(settings, incoming=planned))
    for name, table in tables["incoming"].items():
        channel = spec.incoming[name]
        if channel.spark is not None:
            kept = {key: value for key, value in table.items() if key not in FOR_HANDLERS}
            tables["incoming"][name] = {**kept, "spark": spark_table(channel.settings)}
    return tables


def _refuse_warnings(count: int) -> None:
    if count:
        raise WrongUsage(f"{counted(count, 'warning')}, and with --strict there must be none")


def _senders(channel: str, plan: AppPlan) -> str:
    """Return the functions whose results go to a channel."""
    handlers = [
        handler_plan.handler.name
        for handler_plan in plan.handlers
        if channel in handler_plan.outgoing
    ]
    sources = [f"source {source.name}" for source in plan.sources if channel in source.outgoing]
    return ", ".join(dict.fromkeys([*handlers, *sources]))


def _what_is_read(table: Mapping[str, Any]) -> str:
    """Return what the channel reads, and for which group."""
    group = f"group {table['group_id']}" if "group_id" in table else "no group"
    if "pattern" in table:
        return f"pattern {table['pattern']}, {group}"
    noun = "partition" if "assign" in table else "topic"
    names = table["assign"] if "assign" in table else table["topics"]
    plural = "s" if len(names) > 1 else ""
    return f"{noun}{plural} {', '.join(names)}, {group}"


def _own_brokers(table: Mapping[str, Any], servers: str) -> str:
    """Return the channel's brokers, if they differ from those of the application."""
    own = table.get("bootstrap_servers", servers)
    return "" if own == servers else f", at {own}"


def _consumers(plan: IncomingPlan) -> Iterator[str]:
    """The functions that consume a channel of Kafka, one line each."""
    if plan.spark is not None:
        yield f"  handler = {_on_spark(plan.spark, plan.settings)}"
    elif not plan.handlers:
        yield "  handler = none: for `async for message in app.channel(...)`"
    yield from _handlers(plan.handlers)


def _handlers(handlers: Sequence[HandlerPlan]) -> Iterator[str]:
    for handler in handlers:
        when = "" if handler.when is None else f", when {name_of_handler(handler.when)}"
        yield f"  handler = {_handler(handler)}{when}"


def _handler(plan: HandlerPlan) -> str:
    """Return a handler with its argument, where it runs, and where its results go."""
    handler = plan.handler
    argument = name_of(handler.payload_type)
    if handler.shape is not Shape.PAYLOAD:
        argument = f"{handler.shape.name.capitalize()}[{argument}]"
    runs = "on the event loop" if handler.is_async else "in worker threads"
    what = "sends what it yields to" if handler.yields else "sends to"
    sends = f", {what} {', '.join(plan.outgoing)}" if plan.outgoing else ""
    return f"{handler.name}({argument}), {runs}{sends}"


def _on_spark(spark: SparkFunction, settings: IncomingSettings) -> str:
    """Return a Spark function, and how its batches run."""
    name = f"{spark.function.__module__}.{spark.function.__qualname__}"
    jobs = settings.spark.max_concurrent_jobs
    at_once = f"{jobs} at once" if jobs > 1 else "one at a time"
    pool = settings.spark.pool or settings.name
    text = f"{name}, batches on Spark: mode {settings.spark.mode}, {at_once}, pool {pool}"
    if spark.payload is not None:
        # The function gets a column for each field of the payload.
        text += f", payload {spark.payload.schema.model}"
        if spark.payload.show_corrupt:
            text += ", corrupt ones too"
    return text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
