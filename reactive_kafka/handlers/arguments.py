"""What a decorator or a hook was given, checked at once or at start-up; every error shows how to write it. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from reactive_kafka.config.load import read_retry
from reactive_kafka.config.schema import AckMode, RetrySettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.signature import name_and_place


def channel_name(decorator: str, channel: Any) -> str:
    """*channel* as ``@app.DECORATOR`` took it.

    Raises:
        ConfigError: It is no name; most often the decorated function, where the parentheses were left out.
    """
    if isinstance(channel, str):
        return channel
    if callable(channel):
        right = f'write @app.{decorator}("orders") above it, with the name of a channel'
        raise ConfigError(f"@app.{decorator} of {name_and_place(channel)}: {right}")
    raise ConfigError(f"@app.{decorator}({channel!r}): expected the name of a channel")


def check_is_function(decorator: str, function: Any) -> None:
    """Check that ``@app.DECORATOR``, which takes no arguments, got the function below it.

    Raises:
        ConfigError: It got something else.
    """
    if not callable(function):
        right = f"write @app.{decorator} above a function, without parentheses"
        raise ConfigError(f"@app.{decorator}({function!r}): {right}")


def misfit(who: str, hook: Callable[..., Any], *given: str) -> str | None:
    """Why a hook cannot be called, or None.

    Args:
        who: The decorator, as it was written.
        given: What each of its arguments is.
    """
    try:
        signature = inspect.signature(hook)
    except (ValueError, TypeError):  # a builtin without one: the call will tell
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        number = ("without an argument", "with one argument", "with two arguments")[len(given)]
        called = f"{number}, {' and '.join(given)}" if given else number
        return f"{who} of {name_and_place(hook)} is called {called}: {error}"
    return None


def takes_two(hook: Callable[..., Any]) -> bool:
    """Whether a hook has a second parameter that can be given by its place; ``*arguments`` is none."""
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (ValueError, TypeError):  # a builtin without a signature
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in by_place for parameter in parameters) >= 2


def ack_mode(ack: str | None) -> AckMode | None:
    """*ack* as a decorator took it.

    Raises:
        ConfigError: It is not one of the modes.
    """
    if ack is None or ack in get_args(AckMode):
        return ack  # type: ignore[return-value]  # one of them
    raise ConfigError(f"@app.incoming(ack={ack!r}): allowed are {', '.join(map(repr, get_args(AckMode)))}")


def shows_corrupt(channel: str, payload: Any, corrupt: Any) -> bool:
    """Whether the function of ``@app.spark(channel, payload=, corrupt=)`` gets the rows that do not fit its payload.

    Raises:
        ConfigError: *corrupt* is neither "drop" nor "show", or there is no payload to fit.
    """
    who = f"@app.spark({channel!r}, corrupt={corrupt!r})"
    if corrupt not in ("drop", "show"):
        raise ConfigError(f"{who}: allowed are 'drop', 'show'")
    if corrupt == "show" and payload is None:
        raise ConfigError(f"{who}: it is about records that do not fit a payload: give payload = Model, too")
    return bool(corrupt == "show")


def retry_settings(channel: str, retry: int | Mapping[str, Any] | RetrySettings | None) -> RetrySettings | None:
    """*retry* as ``@app.incoming`` took it: a number of calls in all, or a table like ``[incoming.NAME.retry]``.

    Raises:
        ConfigError: It is neither, or the table is wrong.
    """
    if retry is None or isinstance(retry, RetrySettings):
        return retry
    who = f"@app.incoming({channel!r}, retry={retry!r})"
    table = {"max_attempts": retry} if isinstance(retry, int) and not isinstance(retry, bool) else retry
    if not isinstance(table, Mapping):
        raise ConfigError(f"{who}: expected a number of calls, or a table with max_attempts, backoff, max_backoff")
    return read_retry(who, table)
