"""When a client asks what is wanted, and when it pushes, after every answer of a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.client_metrics.push_schedule import (
    MOST_IN_A_ROW,
    UNANSWERED,
    USUAL_INTERVAL_S,
    PushSchedule,
)
from tests.broker.metrics_receivers import (
    CODES,
    INSTANCE,
    NEW_INSTANCE,
    push_answer,
    refused,
    subscription,
)

NOW = 100.0
INTERVAL_S = 10.0


def subscribed() -> PushSchedule:
    """A client that pushes, and has pushed at NOW."""
    schedule = PushSchedule()
    schedule.connected(NOW)
    schedule.asked(subscription(push_interval_s=INTERVAL_S), NOW, 0.5)
    schedule.pushed(push_answer(), NOW)
    return schedule


def test_a_client_that_has_connected_asks_at_once() -> None:
    schedule = PushSchedule()
    schedule.connected(NOW)
    assert schedule.wait_s(NOW) == 0.0
    assert schedule.instance_id == NEW_INSTANCE
    assert schedule.subscription is None


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 5.0), (0.5, 10.0), (1.0, 15.0)])
def test_the_first_push_comes_after_half_to_one_and_a_half_intervals(
    chance: float, wait_s: float
) -> None:
    schedule = PushSchedule()
    schedule.asked(subscription(push_interval_s=10.0), NOW, chance)
    assert schedule.instance_id == INSTANCE
    assert schedule.wait_s(NOW) == pytest.approx(wait_s)


def test_each_next_push_comes_a_whole_interval_later() -> None:
    schedule = subscribed()
    assert schedule.wait_s(NOW) == INTERVAL_S
    assert schedule.wait_s(NOW + 4) == INTERVAL_S - 4
    assert schedule.wait_s(NOW + 40) == 0.0


def test_a_broker_that_wants_nothing_is_asked_once_an_interval() -> None:
    schedule = PushSchedule()
    schedule.asked(subscription(prefixes=(), push_interval_s=300.0), NOW, 0.1)
    assert schedule.subscription is None
    assert schedule.wait_s(NOW) == 300.0


def test_an_answer_without_an_interval_means_the_usual_one() -> None:
    schedule = PushSchedule()
    schedule.asked(subscription(push_interval_s=0.0), NOW, 0.5)
    assert schedule.wait_s(NOW) == USUAL_INTERVAL_S


def test_a_throttled_client_waits_for_so_long_at_least() -> None:
    schedule = subscribed()
    schedule.pushed(push_answer(throttle_s=60.0), NOW)
    assert schedule.wait_s(NOW) == 60.0
    assert schedule.subscription is not None


@pytest.mark.parametrize(
    "name", ["NONE", "UNKNOWN_SUBSCRIPTION_ID", "TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"]
)
def test_a_throttle_counts_with_every_answer(name: str) -> None:
    schedule = subscribed()
    schedule.pushed(push_answer(name, throttle_s=60.0), NOW)
    assert schedule.wait_s(NOW) == 60.0

    schedule = subscribed()
    schedule.connected(NOW)
    answer = subscription(push_interval_s=INTERVAL_S, throttle_s=60.0)
    schedule.asked(answer if name == "NONE" else refused(name, throttle_s=60.0), NOW, 0.5)
    assert schedule.wait_s(NOW) == 60.0


@pytest.mark.parametrize("name", ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"])
def test_a_changed_subscription_is_asked_for_at_once_but_not_for_ever(name: str) -> None:
    schedule = subscribed()
    waits = []
    for _ in range(MOST_IN_A_ROW + 1):
        schedule.asked(subscription(push_interval_s=INTERVAL_S), NOW, 0.5)
        schedule.pushed(push_answer(name), NOW)
        assert schedule.subscription is None
        waits.append(schedule.wait_s(NOW))
    assert waits == [0.0] * MOST_IN_A_ROW + [INTERVAL_S]

    schedule.asked(subscription(push_interval_s=INTERVAL_S), NOW, 0.5)
    schedule.pushed(push_answer(), NOW)
    schedule.pushed(push_answer(name), NOW)
    assert schedule.wait_s(NOW) == 0.0


def test_after_a_push_that_was_too_large_the_next_one_is_smaller_and_an_interval_later() -> None:
    schedule = subscribed()
    schedule.pushed(push_answer("TELEMETRY_TOO_LARGE"), NOW)
    assert schedule.is_reduced
    assert schedule.subscription is not None
    assert schedule.wait_s(NOW) == INTERVAL_S

    schedule.connected(NOW)
    schedule.asked(subscription(), NOW, 0.5)
    assert not schedule.is_reduced


def test_a_push_that_came_too_early_is_followed_by_a_question_after_the_interval() -> None:
    schedule = subscribed()
    schedule.pushed(push_answer("THROTTLING_QUOTA_EXCEEDED"), NOW)
    assert schedule.subscription is None
    assert schedule.wait_s(NOW) == INTERVAL_S


@pytest.mark.parametrize("name", ["INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION"])
def test_a_broker_that_does_not_understand_is_left_alone_until_the_client_connects_again(
    name: str,
) -> None:
    schedule = subscribed()
    schedule.pushed(push_answer(name), NOW)
    assert schedule.wait_s(NOW) is None
    assert not schedule.is_due(NOW + 1e9)

    schedule.connected(NOW + 50)
    assert schedule.wait_s(NOW + 50) == 0.0
    assert schedule.instance_id == INSTANCE


def test_a_broker_without_the_requests_is_not_asked_again() -> None:
    schedule = PushSchedule()
    schedule.unsupported()
    assert schedule.wait_s(NOW) is None


def test_waits_for_brokers_that_are_away_grow_until_one_answers() -> None:
    schedule = subscribed()
    waits = []
    for _ in range(8):
        schedule.unanswered(NOW, 0.0)
        waits.append(schedule.wait_s(NOW))
    assert waits == [UNANSWERED.wait_s(attempt) for attempt in range(8)]
    assert waits[-1] == UNANSWERED.last_s

    schedule.asked(refused("THROTTLING_QUOTA_EXCEEDED"), NOW, 0.5)
    schedule.unanswered(NOW, 0.0)
    assert schedule.wait_s(NOW) == UNANSWERED.first_s


STEPS = st.sampled_from(["asked", "nothing wanted", "pushed", "unanswered", "skipped"])
NAMES = st.sampled_from(sorted(CODES))


@given(st.lists(st.tuples(STEPS, NAMES), min_size=1), st.floats(0, 1))
def test_whatever_brokers_answer_a_client_sends_no_more_than_it_may(
    steps: list[tuple[str, str]], chance: float
) -> None:
    """At most MOST_IN_A_ROW requests follow each other at once; all others wait for something."""
    schedule = PushSchedule()
    schedule.connected(NOW)
    in_a_row = 0
    for step, name in steps:
        if step == "asked":
            is_ok = name == "NONE"
            schedule.asked(subscription() if is_ok else refused(name), NOW, chance)
        elif step == "nothing wanted":
            schedule.asked(subscription(prefixes=()), NOW, chance)
        elif step == "pushed":
            if schedule.subscription is None:
                continue
            schedule.pushed(push_answer(name), NOW)
            if name == "NONE":
                in_a_row = 0
        elif step == "unanswered":
            schedule.unanswered(NOW, chance)
        else:
            schedule.skipped(NOW)
        wait_s = schedule.wait_s(NOW)
        in_a_row += wait_s == 0.0
        assert in_a_row <= MOST_IN_A_ROW
        assert wait_s is None or wait_s == 0.0 or wait_s >= 0.5
