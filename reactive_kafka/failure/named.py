"""The failure strategies of a channel, by the names that its settings use for them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.failure.decision import FailureStrategy
from reactive_kafka.failure.strategies import DeadLetterQueue, DelayedRetry, Fail, Ignore
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.custom import load_object

DEAD_LETTER_QUEUE, DELAYED_RETRY = "dead-letter-queue", "delayed-retry-topic"


def strategies_of(settings: IncomingSettings) -> Mapping[str, FailureStrategy]:
    """Name -> strategy, of all that the settings name; the dead-letter queue too, where it is configured.

    A custom one is ``module:object``: an instance, or a class or function that makes one of the settings.

    Raises:
        ConfigError: A custom one cannot be imported or made, or has no ``decide``; a built-in one lacks its topic.
    """
    names = {"failure_strategy": settings.failure_strategy}
    names |= {f"failure_routes.{exception}": name for exception, name in settings.failure_routes.items()}
    problems, result = [], _built_in(settings)
    for key, name in names.items():
        if name not in result:
            try:
                result[name] = _custom(name, settings)
            except FormatError as error:
                problems.append(f"channel {settings.name!r}: {key} = {name!r}: {error}")
    if problems:
        raise ConfigError(*problems)
    return result


def _built_in(settings: IncomingSettings) -> dict[str, FailureStrategy]:
    result: dict[str, FailureStrategy] = {"fail": Fail(), "ignore": Ignore()}
    if settings.dead_letter_queue is not None:
        letters = result[DEAD_LETTER_QUEUE] = DeadLetterQueue(
            settings.dead_letter_queue.topic,
            deserializer=settings.value_deserializer,
            retry_topics=() if settings.delayed_retry is None else settings.delayed_retry.topics,
        )
        if settings.delayed_retry is not None:
            result[DELAYED_RETRY] = DelayedRetry(settings.delayed_retry, letters)
    return result


def _custom(name: str, settings: IncomingSettings) -> FailureStrategy:
    if ":" not in name:
        allowed = ", ".join(_built_in(settings))
        raise FormatError(f"there is no such strategy here; allowed: {allowed} or module:object")
    target = load_object(name)
    if inspect.isclass(target) or not hasattr(target, "decide"):
        target = _made(name, target, settings)
    if not callable(getattr(target, "decide", None)):
        raise FormatError(f"{type(target).__name__} has no method decide(failed)")
    strategy: FailureStrategy = target
    return strategy


def _made(name: str, factory: object, settings: IncomingSettings) -> object:
    if not callable(factory):
        raise FormatError(f"{type(factory).__name__} has no method decide(failed)")
    try:
        return factory(settings)
    except Exception as error:  # the factory is the user's and may raise anything; start-up stops with its error
        raise FormatError(
            f"{name} called with the channel's settings raised {type(error).__name__}: {error}"
        ) from error
