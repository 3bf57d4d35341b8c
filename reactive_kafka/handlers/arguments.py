"""Checks the arguments of decorators at once, where they are written. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from reactive_kafka.config.keys import INCOMING, Section, is_known
from reactive_kafka.config.load import read_retry
from reactive_kafka.config.settings import AckMode
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.decorations import IncomingDecoration, When
from reactive_kafka.handlers.introspection import is_coroutine, only_yields
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.observe.health import OWN_CHECKS


def channel_name(decorator: str, channel: Any) -> str:
    """Return the name of the channel that ``@app.DECORATOR`` was given.

    Raises:
        ConfigError: It is no name.
    """
    if callable(channel):
        # This is the decorated function: the parentheses are missing.
        raise ConfigError(
            f'@app.{decorator} of {name_and_place(channel)}: write @app.{decorator}("orders") '
            "above it, with the name of a channel"
        )
    if not isinstance(channel, str):
        raise ConfigError(f"@app.{decorator}({channel!r}): expected the name of a channel")
    return channel


def readiness_name(name: Any) -> str:
    """Return the name of the check that ``@app.readiness`` was given.

    Raises:
        ConfigError: It is no name, or it is the name of another check.
    """
    if callable(name):
        # This is the decorated function: the parentheses are missing.
        raise ConfigError(
            f'@app.readiness of {name_and_place(name)}: write @app.readiness("schemas") above it, '
            "with a name for the check"
        )
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"@app.readiness({name!r}): expected a name for the check")
    if name in OWN_CHECKS:
        raise ConfigError(f"@app.readiness({name!r}): there is a check with this name")
    return name


def check_given(decorator: str, channel: str, section: Section, given: Collection[str]) -> None:
    """Refuse arguments that ``@app.DECORATOR`` does not have.

    Their values may be secrets, so they are not shown.

    Args:
        section: The section of the channel. An argument may be one of its keys.
    """
    if not given:
        return
    configured = [name for name in given if is_known(section, name)]
    strange = [name for name in given if name not in configured]
    hints = []
    if configured:
        name = channel if channel.isidentifier() else repr(channel)
        table = f"[{section.title.removesuffix('X')}{name}]"
        what = ", ".join(configured) if strange else "that"
        hints.append(f"{what} is configuration: write it in {table}")
    if strange:
        hints.append(f"unknown argument {', '.join(strange)}" if configured else "unknown argument")
    arguments = ", ".join(f"{name}=..." for name in given)
    raise ConfigError(f"@app.{decorator}({channel!r}, {arguments}): {'; '.join(hints)}")


def check_is_function(decorator: str, function: Any) -> None:
    """Check that ``@app.DECORATOR``, which takes no arguments, was given the function below it."""
    if not callable(function):
        raise ConfigError(
            f"@app.{decorator}({function!r}): write @app.{decorator} above a function, without "
            "parentheses"
        )


def incoming_of(
    channel: str,
    ack: str | None,
    retry: int | Mapping[str, Any] | RetrySettings | None,
    when: When | None,
    layers: Layers,
    who: str = "@app.incoming",
) -> IncomingDecoration:
    """Return what ``@app.incoming(channel, ack=, retry=, when=)`` says.

    Args:
        layers: The middleware of the application or router that it belongs to.
        who: The decorator, or the call with the same arguments, for errors.

    Raises:
        ConfigError: An argument is wrong.
    """
    mode: AckMode | None = None
    if ack is not None:
        try:
            mode = INCOMING.keys["ack"].kind.parse(ack)
        except ValueError as error:
            raise ConfigError(f"{who}(ack={ack!r}): {error}") from None
    if when is not None and not callable(when):
        raise ConfigError(
            f"{who}({channel!r}, when={when!r}): it is no function: give a plain one of the Message"
        )
    if when is not None and is_coroutine(when):
        raise ConfigError(
            f"{who}({channel!r}, when={when!r}): it is async, but its answer is needed at once: "
            "give a plain one of the Message"
        )
    if when is not None and only_yields(when):
        raise ConfigError(f"{who}({channel!r}, when={when!r}): it yields: return True or False")
    return IncomingDecoration(channel, mode, _retry_settings(channel, retry, who), when, layers)


def shows_corrupt(channel: str, payload: Any, corrupt: Any) -> bool:
    """Return whether a Spark function gets the rows that do not fit its payload.

    Raises:
        ConfigError: ``corrupt=`` of its decorator is wrong.
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
    """Return the retries that a decorator says.

    Args:
        retry: A number of calls in all, or a table like ``[incoming.NAME.retry]``.

    Raises:
        ConfigError: It is neither, or the table is wrong.
    """
    if retry is None or isinstance(retry, RetrySettings):
        return retry
    who = f"{decorator}({channel!r}, retry={retry!r})"
    if isinstance(retry, int) and not isinstance(retry, bool):
        return read_retry(who, {"max_attempts": retry}).max_attempts
    if not isinstance(retry, Mapping):
        raise ConfigError(
            f"{who}: expected a number of calls, or a table with max_attempts, backoff, max_backoff"
        )
    return read_retry(who, retry)
