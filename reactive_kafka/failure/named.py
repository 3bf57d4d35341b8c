"""The failure strategies of a channel, by the names that its settings use for them, and which one an exception meets.

An exception meets that of the nearest class that a route names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError, DecodeError, OffloadError
from reactive_kafka.failure.decision import FailureStrategy
from reactive_kafka.failure.headers import dotted, given
from reactive_kafka.failure.strategies import DeadLetterQueue, DelayedRetry, Fail, Ignore
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.custom import load_strategy, made_strategy

DEAD_LETTER_QUEUE, DELAYED_RETRY = "dead-letter-queue", "delayed-retry-topic"
BUILT_IN = ("fail", "ignore", DEAD_LETTER_QUEUE, DELAYED_RETRY)


def strategies_of(settings: IncomingSettings) -> Mapping[str, FailureStrategy]:
    """Name -> strategy, of all that the settings name; the dead-letter queue too, where it is configured.

    A custom one is ``module:object``: an instance, or a class or function that makes one of the settings.

    Raises:
        ConfigError: A custom one cannot be imported or made, or has no ``decide``; a built-in one lacks its topic.
    """
    return _built_in(settings) | _each(settings, _made)


def load_custom(settings: IncomingSettings) -> Mapping[str, Any]:
    """Name -> the user's own strategy, or what makes it, of all that the settings name; ConfigError as above."""
    return _each(settings, _loaded)


def _each(settings: IncomingSettings, get: Callable[[str, IncomingSettings], Any]) -> dict[str, Any]:
    """Name -> what *get* says of it, of the strategies that are not built in; each key that it raises for is told."""
    names = {"failure_strategy": settings.failure_strategy}
    names |= {f"failure_routes.{exception}": name for exception, name in settings.failure_routes.items()}
    problems, result, built_in = [], {}, _built_in(settings)
    for key, name in names.items():
        if name not in built_in and name not in result:
            try:
                result[name] = get(name, settings)
            except FormatError as error:
                problems.append(f"{settings.place(key, name)}: {error}")
    if problems:
        raise ConfigError(*problems)
    return result


def _built_in(settings: IncomingSettings) -> dict[str, FailureStrategy]:
    result: dict[str, FailureStrategy] = {"fail": Fail(), "ignore": Ignore()}
    if settings.dead_letter_queue is not None:
        letters = result[DEAD_LETTER_QUEUE] = DeadLetterQueue(
            settings.dead_letter_queue.topic,
            deserializer=settings.value_deserializer,
            key_deserializer=settings.key_deserializer,
            retry_topics=() if settings.delayed_retry is None else settings.delayed_retry.topics,
        )
        if settings.delayed_retry is not None:
            result[DELAYED_RETRY] = DelayedRetry(settings.delayed_retry, letters)
    return result


def _loaded(name: str, settings: IncomingSettings) -> Any:
    if ":" not in name:
        allowed = ", ".join(_built_in(settings))
        raise FormatError(f"there is no such strategy here; allowed: {allowed} or module:object")
    try:
        return load_strategy(name, "decide")
    except FormatError as error:
        raise FormatError(f"{error}; allowed: {', '.join(BUILT_IN)} or module:object") from error


def _made(name: str, settings: IncomingSettings) -> FailureStrategy:
    strategy: FailureStrategy = made_strategy(_loaded(name, settings), "decide", settings)
    if not callable(getattr(strategy, "decide", None)):
        raise FormatError(f"{type(strategy).__name__} has no method decide(failed)")
    return strategy


def strategy_for(reason: BaseException, routes: Mapping[str, str], default: str) -> str:
    """The strategy of the nearest class, counted from the exception's own along its bases; *default* without one.

    What a record that cannot be decoded failed with (``ValidationError``, say), or what a Spark function raised, is
    looked at beside our own error, and comes first where both are as near.

    Args:
        routes: Exception -> strategy. ``ValueError`` is any class of that name; ``package.ValueError`` the class that
            is defined there, or that can be imported from there.
    """
    reason = given(reason)
    found = [_nearest(type(reason), routes)]
    if isinstance(reason, DecodeError | OffloadError) and reason.__cause__ is not None:
        found.insert(0, _nearest(type(reason.__cause__), routes))
    near = [one for one in found if one is not None]
    return min(near, key=lambda one: one[0])[1] if near else default


def _nearest(kind: type[BaseException], routes: Mapping[str, str]) -> tuple[int, str] | None:
    """How far the nearest class is, and its strategy."""
    for distance, base in enumerate(kind.__mro__):
        for name, strategy in sorted(routes.items(), key=lambda route: "." not in route[0]):  # dotted ones say more
            if name == base.__name__ or name == dotted(base) or ("." in name and _is_exported(name, base)):
                return distance, strategy
    return None


def _is_exported(name: str, kind: type) -> bool:
    """Whether *name* is another way to import the class: ``pydantic.ValidationError`` is defined elsewhere."""
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), "__dict__", {}).get(attribute) is kind  # asks no module's __getattr__
