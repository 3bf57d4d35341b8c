"""What decorators are called with, checked at once. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from reactive_kafka.config.keys import INCOMING, Section, is_known
from reactive_kafka.config.load import read_retry
from reactive_kafka.config.schema import AckMode
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.decorations import IncomingDecoration, When
from reactive_kafka.handlers.introspection import is_coroutine
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.handlers.signature import name_and_place


def channel_name(decorator: str, channel: Any) -> str:
    """The name of the channel that ``@app.DECORATOR`` was given."""
    # The decorated function: the parentheses are missing.
    if callable(channel):
        right = f'write @app.{decorator}("orders") above it, with the name of a channel'
        raise ConfigError(f"@app.{decorator} of {name_and_place(channel)}: {right}")
    if not isinstance(channel, str):
        raise ConfigError(f"@app.{decorator}({channel!r}): expected the name of a channel")
    return channel


def check_given(decorator: str, channel: str, section: Section, given: Collection[str]) -> None:
    """Refuse further arguments of ``@app.DECORATOR``; their values may be secrets, and are not
    shown.
    """
    if not given:
        return
    configured = [name for name in given if is_known(section, name)]
    strange = [name for name in given if name not in configured]
    said = []
    if configured:
        table = f"[{section.title.removesuffix('X')}{channel if channel.isidentifier() else repr(channel)}]"
        said.append(
            f"{', '.join(configured) if strange else 'that'} is configuration: write it in {table}"
        )
    if strange:
        said.append("unknown argument" + (f" {', '.join(strange)}" if configured else ""))
    raise ConfigError(
        f"@app.{decorator}({channel!r}, {', '.join(f'{name}=...' for name in given)}): {'; '.join(said)}"
    )


def check_is_function(decorator: str, function: Any) -> None:
    """Check that ``@app.DECORATOR``, which takes no arguments, was given the function below it."""
    if not callable(function):
        right = f"write @app.{decorator} above a function, without parentheses"
        raise ConfigError(f"@app.{decorator}({function!r}): {right}")


def incoming_of(
    channel: str,
    ack: str | None,
    retry: int | Mapping[str, Any] | RetrySettings | None,
    when: When | None,
    layers: Layers,
    who: str = "@app.incoming",
) -> IncomingDecoration:
    """What ``@app.incoming(channel, ack=, retry=, when=)`` says, of an application or router with
    these layers.

    *who* is said instead of it, by a call with the same arguments.
    """
    try:
        mode: AckMode | None = None if ack is None else INCOMING.keys["ack"].kind.parse(ack)
    except ValueError as error:
        raise ConfigError(f"{who}(ack={ack!r}): {error}") from None
    if when is not None and (not callable(when) or is_coroutine(when)):
        what = "is async, but its answer is needed at once" if callable(when) else "is no function"
        raise ConfigError(
            f"{who}({channel!r}, when={when!r}): it {what}: give a plain one of the Message"
        )
    return IncomingDecoration(channel, mode, _retry_settings(channel, retry, who), when, layers)


def shows_corrupt(channel: str, payload: Any, corrupt: Any) -> bool:
    """Whether the function of ``@app.spark(channel, payload=, corrupt=)`` gets the rows that do not
    fit its payload.
    """
    who = f"@app.spark({channel!r}, corrupt={corrupt!r})"
    if corrupt not in ("drop", "show"):
        raise ConfigError(f"{who}: allowed are 'drop', 'show'")
    if corrupt == "show" and payload is None:
        raise ConfigError(
            f"{who}: it is about records that do not fit a payload, so give payload = Model, too"
        )
    return bool(corrupt == "show")


def _retry_settings(
    channel: str, retry: int | Mapping[str, Any] | RetrySettings | None, decorator: str
) -> int | RetrySettings | None:
    """The retries of an ``@app.incoming``: a number of calls in all, or a table like
    ``[incoming.NAME.retry]``.
    """
    if retry is None or isinstance(retry, RetrySettings):
        return retry
    who = f"{decorator}({channel!r}, retry={retry!r})"
    table = (
        {"max_attempts": retry} if isinstance(retry, int) and not isinstance(retry, bool) else retry
    )
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{who}: expected a number of calls, or a table with max_attempts, backoff, max_backoff"
        )
    read = read_retry(who, table)
    return read.max_attempts if table is not retry else read
