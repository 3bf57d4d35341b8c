"""``reactive-kafka check``: check an application and its configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_app
from reactive_kafka.cli.console_text import counted
from reactive_kafka.cli.errors import WrongUsage
from reactive_kafka.config.dump import dump, spark_table
from reactive_kafka.config.load import toml_of_quarkus
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.formats.payload_type import name_of
from reactive_kafka.handlers.signature import Shape, name_of_handler
from reactive_kafka.planning.channel_plans import AppPlan, HandlerPlan, IncomingPlan

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkFunction

# Settings in the first line of a channel.
COMMON = ("bootstrap_servers", "topic", "topics", "pattern", "assign", "group_id")
# Settings without effect on a channel whose batches run on Spark.
FOR_HANDLERS = (
    "batch_max_records",
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
def check(
    target: str | None,
    config: tuple[Path, ...] | None,
    from_quarkus: Path | None,
    app_dir: Path,
    strict: bool,
) -> None:
    """Check an application's configuration and handlers, without connecting.

    Prints each channel with its handler and its effective settings, and each source; secrets are
    masked. If anything is wrong, prints every problem with file and line, and exits with 2.
    Settings that have no effect, or are probably not meant, are warnings.

    \b
    Examples:
      reactive-kafka check billing:app
      reactive-kafka check billing:app --config prod.toml --strict
      reactive-kafka check --from-quarkus application.properties > reactive-kafka.toml
    """
    if from_quarkus is not None:
        if target is not None or config is not None:
            raise click.UsageError("--from-quarkus cannot be combined with MODULE:APP and --config")
        text, warnings = toml_of_quarkus(from_quarkus, os.environ)
        click.echo(text, nl=False)
        _refuse_warnings(len(warnings) if strict else 0)
        return
    if target is None:
        raise click.UsageError("Missing argument 'MODULE:APP'.")
    app = load_app(target, app_dir)
    settings = app.configure(config)
    spec = app.plan
    click.echo(f"configuration  {settings.source}")
    for warning in settings.warnings:
        click.echo(f"warning        {warning}")
    click.echo("\n".join(_report(_tables(settings, spec), spec)))
    app_warnings = [*spec.warnings]
    if app.declared.warning:
        app_warnings.append(app.declared.warning)
    for warning in app_warnings:
        click.echo(f"\nwarning: {warning}")
    _refuse_warnings(len(settings.warnings) + len(app_warnings) if strict else 0)
    counts = [f"{len(spec.incoming)} incoming", f"{len(spec.outgoing)} outgoing"]
    if spec.sources:
        counts.append(counted(len(spec.sources), "source"))
    if spec.memory:
        counts.append(f"{len(spec.memory)} memory")
    click.echo(f"\n{target} is fine: {', '.join(counts)}")


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


def _report(tables: Mapping[str, Any], spec: AppPlan) -> Iterator[str]:
    """Yield the lines that ``check`` prints about the settings."""
    servers = tables["kafka"]["bootstrap_servers"]
    http = tables["http"]
    spark = tables["spark"]
    yield f"brokers        {servers}"
    if http["enabled"]:
        yield f"http           {http['host']}:{http['port']}"
    else:
        yield "http           off"
    if any(channel.spark is not None for channel in spec.incoming.values()):
        yield f"spark          {spark.get('remote') or spark['master']}"
    for name, channel in spec.incoming.items():
        table = tables["incoming"][name]
        yield f"\nincoming {name}: {_what_is_read(table)}{_own_brokers(table, servers)}"
        yield from _consumers(channel)
        yield from _settings(table)
    for source in spec.sources:
        yield f"\nsource {source.name}: sends what it yields to {', '.join(source.outgoing)}"
    for name in spec.outgoing:
        table = tables["outgoing"][name]
        yield f"\noutgoing {name}: topic {table['topic']}{_own_brokers(table, servers)}"
        yield f"  from = {_senders(name, spec) or 'no handler or source'}"
        yield from _settings(table)
    for name, memory in spec.memory.items():
        yield f"\nmemory {name}: at most {tables['memory'][name]['max_in_flight']} values in flight"
        yield f"  from = {_senders(name, spec) or 'app.emitter()'}"
        yield from _handlers(memory.handlers)


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


def _settings(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if key in COMMON:
            continue
        if isinstance(value, Mapping):
            yield from (f"  {key}.{inner} = {_text(setting)}" for inner, setting in value.items())
        else:
            yield f"  {key} = {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
