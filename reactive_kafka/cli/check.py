"""``reactive-kafka check``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.target import load_app
from reactive_kafka.config.dump import dump, spark_table
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.formats.wanted import name_of
from reactive_kafka.handlers.spec import AppSpec, IncomingSpec
from reactive_kafka.spark.batches.function import SparkFunction

COMMON = ("bootstrap_servers", "topic", "topics", "pattern", "assign", "group_id")
"""Shown in the channel's first line."""
FOR_HANDLERS = ("batch_max_records", "batch_max_wait", "concurrency", "value_deserializer", "key_deserializer")
"""Without effect on a channel whose batches run on Spark."""


@click.command(name="check")
@options.target
@options.app_config
@options.app_dir
def command(target: str, config: Path | None, app_dir: Path) -> None:
    """Check an application's configuration and handlers, without connecting.

    Prints each channel with its handler and its effective settings; secrets are masked. If anything is wrong,
    prints every problem with file and line, and exits with 2.

    \b
    Examples:
      reactive-kafka check billing:app
      reactive-kafka check billing:app --config prod.toml
    """
    app = load_app(target, app_dir)
    settings = app.configure(config)
    spec = app.plan
    as_decorated = {name: channel.settings for name, channel in spec.incoming.items()}
    tables = dump(replace(settings, incoming=as_decorated))
    for name, channel in spec.incoming.items():
        if channel.spark is not None:
            tables["incoming"][name] = _of_spark(tables["incoming"][name], spark_table(channel.settings))
    for line in report(target, settings.source, tables, spec):
        click.echo(line)


def report(target: str, source: str, tables: Mapping[str, Any], spec: AppSpec) -> Iterator[str]:
    """The lines that are printed.

    Args:
        tables: The settings as :func:`~reactive_kafka.config.dump.dump` shows them, secrets masked.
        spec: How the handlers fit them.
    """
    http, spark = tables["http"], tables["spark"]
    yield f"configuration  {source}"
    yield f"brokers        {tables['kafka']['bootstrap_servers']}"
    yield f"http           {http['host']}:{http['port']}" if http["enabled"] else "http           off"
    if any(channel.spark is not None for channel in spec.incoming.values()):
        yield f"spark          {spark.get('remote') or spark['master']}"
    for name, channel in spec.incoming.items():
        table = tables["incoming"][name]
        yield ""
        yield f"incoming {name}: {_source(table)}{_elsewhere(table, tables)}"
        yield f"  handler = {_handler(channel)}"
        yield from _settings(table)
    for name in spec.outgoing:
        table = tables["outgoing"][name]
        yield ""
        yield f"outgoing {name}: topic {table['topic']}{_elsewhere(table, tables)}"
        yield f"  from = {_senders(name, spec)}"
        yield from _settings(table)
    yield ""
    yield f"{target} is fine: {len(spec.incoming)} incoming, {len(spec.outgoing)} outgoing"


def _source(table: Mapping[str, Any]) -> str:
    """What the channel reads, and for which group."""
    group = f"group {table['group_id']}" if "group_id" in table else "no group"
    if "pattern" in table:
        return f"pattern {table['pattern']}, {group}"
    what, names = ("partition", table["assign"]) if "assign" in table else ("topic", table["topics"])
    return f"{what}{'s' * (len(names) > 1)} {', '.join(names)}, {group}"


def _elsewhere(table: Mapping[str, Any], tables: Mapping[str, Any]) -> str:
    """The channel's brokers, where they are not everybody's."""
    servers = table.get("bootstrap_servers", tables["kafka"]["bootstrap_servers"])
    return "" if servers == tables["kafka"]["bootstrap_servers"] else f", at {servers}"


def _handler(channel: IncomingSpec) -> str:
    if channel.spark is not None:
        return _on_spark(channel.spark, channel.settings)
    handler = channel.handler
    if handler is None:
        return "none: for `async for message in app.channel(...)`"
    payload = name_of(handler.payload_type)
    wants = payload if handler.shape.name == "PAYLOAD" else f"{handler.shape.name.capitalize()}[{payload}]"
    runs = "on the event loop" if handler.is_async else "in worker threads"
    sends = f", sends to {', '.join(channel.outgoing)}" if channel.outgoing else ""
    return f"{handler.name}({wants}), {runs}{sends}"


def _on_spark(spark: SparkFunction, settings: IncomingSettings) -> str:
    """The function, and how its batches are run; a payload is named where the function gets the columns of one."""
    name = f"{spark.function.__module__}.{spark.function.__qualname__}"
    jobs = settings.spark.max_concurrent_jobs
    parts = [
        f"mode {settings.spark.mode}",
        f"{jobs} at once" if jobs > 1 else "one at a time",
        f"pool {settings.spark.pool or settings.name}",
    ]
    if spark.payload is not None:
        corrupt = ", corrupt ones too" if spark.payload.show_corrupt else ""
        parts.append(f"payload {spark.payload.schema.model}{corrupt}")
    return f"{name}, batches on Spark: {', '.join(parts)}"


def _of_spark(table: Mapping[str, Any], spark: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of a channel's *table* where batches run on Spark, with its whole table for that."""
    return {key: value for key, value in table.items() if key not in FOR_HANDLERS} | {"spark": spark}


def _senders(outgoing: str, spec: AppSpec) -> str:
    names = [
        channel.handler.name
        for channel in spec.incoming.values()
        if channel.handler is not None and outgoing in channel.outgoing
    ]
    return ", ".join(dict.fromkeys(names)) or "no handler"


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
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
