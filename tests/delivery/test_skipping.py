"""Which records are skipped for their age, and that a channel without such keys asks nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.records import HeaderPairs
from tests.app.helpers import make_app, tp
from tests.tracking.values import tracker_of
from tests.verdicts.messages import message_of


@given(
    timestamp=st.none() | st.integers(-5, 10_000_000),
    now_s=st.floats(0, 10_000),
    max_age_s=st.none() | st.floats(0.001, 10_000),
    is_retry=st.booleans(),
)
def test_the_rule_of_ages(
    timestamp: int | None, now_s: float, max_age_s: float | None, is_retry: bool
) -> None:
    keys = {"max_record_age": max_age_s} if max_age_s is not None else {}
    app = make_app(failure_strategy="delayed-retry-topic", **keys)
    settings = app.settings.incoming["orders"]
    topic = "orders_retry_10000" if is_retry else "orders"
    message = message_of(AtTime(timestamp), tracker_of(tp(topic=topic)))
    is_old = (
        max_age_s is not None
        and timestamp is not None
        and timestamp >= 0
        and now_s - timestamp / 1000 > max_age_s
    )
    assert Skipping(settings, None, lambda: now_s).is_too_old(message) is (is_old and not is_retry)


@dataclass
class AtTime:
    timestamp: int | None
    offset: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: HeaderPairs = ()


def test_nothing_is_there_for_a_channel_without_them() -> None:
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="g")
    assert not Skipping(settings, None, time.time).is_needed
