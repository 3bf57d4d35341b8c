"""Checks of what decorators are given. Each raises a ConfigError that shows how to write it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactive_kafka.config.keys import INCOMING
from reactive_kafka.config.load import read_retry
from reactive_kafka.config.schema import AckMode
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.signature import name_and_place


def channel_name(decorator: str, channel: Any) -> str:
    """The name of the channel that ``@app.DECORATOR`` was given."""
    if callable(channel):  # the decorated function: the parentheses are missing
        right = f'write @app.{decorator}("orders") above it, with the name of a channel'
        raise ConfigError(f"@app.{decorator} of {name_and_place(channel)}: {right}")
    if not isinstance(channel, str):
        raise ConfigError(f"@app.{decorator}({channel!r}): expected the name of a channel")
    return channel


def check_is_function(decorator: str, function: Any) -> None:
    """Check that ``@app.DECORATOR``, which takes no arguments, was given the function below it."""
    if not callable(function):
        right = f"write @app.{decorator} above a function, without parentheses"
        raise ConfigError(f"@app.{decorator}({function!r}): {right}")


def ack_mode(ack: str | None) -> AckMode | None:
    """The ack mode that a decorator was given."""
    try:
        mode: AckMode | None = None if ack is None else INCOMING.keys["ack"].kind.parse(ack)
    except ValueError as error:
        raise ConfigError(f"@app.incoming(ack={ack!r}): {error}") from None
    return mode


def shows_corrupt(channel: str, payload: Any, corrupt: Any) -> bool:
    """Whether the function of ``@app.spark(channel, payload=, corrupt=)`` gets the rows that do not fit its payload."""
    who = f"@app.spark({channel!r}, corrupt={corrupt!r})"
    if corrupt not in ("drop", "show"):
        raise ConfigError(f"{who}: allowed are 'drop', 'show'")
    if corrupt == "show" and payload is None:
        raise ConfigError(f"{who}: it is about records that do not fit a payload, so give payload = Model, too")
    return bool(corrupt == "show")


def retry_settings(channel: str, retry: int | Mapping[str, Any] | RetrySettings | None) -> RetrySettings | None:
    """The retries of an ``@app.incoming``: a number of calls in all, or a table like ``[incoming.NAME.retry]``."""
    if retry is None or isinstance(retry, RetrySettings):
        return retry
    who = f"@app.incoming({channel!r}, retry={retry!r})"
    table = {"max_attempts": retry} if isinstance(retry, int) and not isinstance(retry, bool) else retry
    if not isinstance(table, Mapping):
        raise ConfigError(f"{who}: expected a number of calls, or a table with max_attempts, backoff, max_backoff")
    return read_retry(who, table)
