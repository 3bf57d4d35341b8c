"""The strategies that a channel's settings name, the user's own among them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reactive_kafka import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.failure import DeadLetterQueue, Decision, DelayedRetry, FailedRecord, Skip
from reactive_kafka.failure.strategies import strategies_of
from tests.config.values import dead_letter_settings, delayed_retry_settings


class Quiet:
    """A strategy of the user's."""

    def __init__(self, settings: IncomingSettings) -> None:
        self.settings = settings

    def decide(self, failed: FailedRecord) -> Decision:
        return Skip()


def make_quiet(settings: IncomingSettings) -> Quiet:
    return Quiet(settings)


def broken(settings: IncomingSettings) -> Quiet:
    raise OSError("no such rule")


async def later(settings: IncomingSettings) -> Quiet:
    return Quiet(settings)


instance = Quiet(IncomingSettings(name="before", topics=(), group_id=None))
number = 5


def settings(**changes: Any) -> IncomingSettings:
    return IncomingSettings(name="orders", topics=("orders",), group_id="billing", **changes)


@pytest.mark.parametrize("name", ["Quiet", "make_quiet"])
def test_a_class_or_a_factory_is_called_with_the_channels_settings(name: str) -> None:
    named = settings(failure_strategy=f"{__name__}:{name}")
    made: Any = strategies_of(named)[f"{__name__}:{name}"]
    assert isinstance(made, Quiet)
    assert made.settings is named


def test_an_instance_is_taken_as_it_is() -> None:
    assert strategies_of(settings(failure_routes={"ValueError": f"{__name__}:instance"}))[
        f"{__name__}:instance"
    ] is (instance)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "number",
            "expected an object with a method decide, or a class or function that makes one, not int",
        ),
        ("broken", "called with the settings of channel 'orders', it raised OSError: no such rule"),
        (
            "missing",
            "has no 'missing'; allowed: fail, ignore, dead-letter-queue, delayed-retry-topic or module:object",
        ),
        ("settings", "it raised TypeError"),
        ("later", "it is async, but its result is needed at once: write a plain function"),
    ],
)
def test_what_cannot_be_one_is_named_with_channel_key_and_value(name: str, said: str) -> None:
    value = f"{__name__}:{name}"
    with pytest.raises(ConfigError, match=re.escape(said)) as raised:
        strategies_of(settings(failure_routes={"ValueError": value}))
    assert f"channel 'orders': failure_routes.ValueError = {value!r}: " in str(raised.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        strategies_of(
            settings(failure_strategy="nonsense", failure_routes={"KeyError": "dead-letter-queue"})
        )
    assert len(raised.value.problems) == 2
    assert "allowed: fail, ignore or module:object" in raised.value.problems[0]


def test_the_dead_letter_queue_is_there_where_only_poison_needs_it() -> None:
    letters = dead_letter_settings(topic="dead")
    assert isinstance(
        strategies_of(settings(dead_letter_queue=letters))["dead-letter-queue"], DeadLetterQueue
    )
    retry = delayed_retry_settings(topics=("a_1",), max_retries=1)
    both = strategies_of(settings(dead_letter_queue=letters, delayed_retry=retry))
    assert isinstance(both["delayed-retry-topic"], DelayedRetry)
