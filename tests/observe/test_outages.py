"""Which failed attempts to reach brokers are told, whoever makes them and however their reasons
differ.
"""

from __future__ import annotations

import pytest

from reactive_kafka.observe.events import BrokerAvailable, BrokerUnavailable, Event
from reactive_kafka.observe.outages import MOST_REASONS, OutageReports

HOUR_S = 3600


class Diary:
    """An observer that keeps texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on(self, event: Event) -> None:
        assert isinstance(event, BrokerUnavailable | BrokerAvailable)
        assert event.channel == "orders"
        self.texts.append(event.text())


def reports() -> tuple[OutageReports, list[str]]:
    diary = Diary()
    return OutageReports("orders", diary), diary.texts


@pytest.mark.parametrize(
    "reasons",
    [
        ("no broker answers",),
        (
            "no broker answers (10.0.0.1:9092: refused)",
            "no broker answers (10.0.0.2:9093: refused)",
        ),
        ("node 1 is away", "node 2 is away", "node 13 is away"),
        ("no answer within 2.5 s", "no answer within 0.31 s"),
    ],
)
def test_an_outage_of_an_hour_is_one_line_and_its_end_another(reasons: tuple[str, ...]) -> None:
    outages, told = reports()
    for second in range(0, HOUR_S, 2):
        outages.away("client", reasons[second // 2 % len(reasons)], 10.0 + second)
    assert told == [f"the broker is away: {reasons[0]}"]
    outages.back("client", 10.0 + HOUR_S)
    outages.back("client", 12.0 + HOUR_S)
    assert told[1:] == ["the broker is back after 3600.0 s"]


def test_a_new_reason_is_told_and_two_that_take_turns_are_told_once_each() -> None:
    outages, told = reports()
    for _ in range(100):
        outages.away("client", "connection refused", 0)
        outages.away("client", "not authorised to read topic 'orders'", 1)
    assert told == [
        "the broker is away: connection refused",
        "the broker is away: not authorised to read topic 'orders'",
    ]


def test_a_new_outage_is_told_again_with_the_same_reason_and_with_its_own_length() -> None:
    outages, told = reports()
    for began in (100.0, 200.0):
        outages.away("client", "connection refused", began)
        outages.back("client", began + 7)
    assert told == ["the broker is away: connection refused", "the broker is back after 7.0 s"] * 2


def test_clients_of_one_channel_share_its_lines_and_the_outage_ends_with_the_last_of_them() -> None:
    outages, told = reports()
    for client in ("first", "second", "retries"):
        outages.away(client, "connection refused", 5)
    outages.back("first", 6)
    outages.back("retries", 7)
    outages.away("first", "connection refused", 8)
    outages.back("second", 9)
    assert told == ["the broker is away: connection refused"]
    outages.back("first", 10)
    assert told[1:] == ["the broker is back after 5.0 s"]


def test_reasons_that_never_come_twice_are_no_flood() -> None:
    outages, told = reports()
    for second in range(HOUR_S):
        outages.away("client", "lost " + "abcdefghij"[second % 10] * (second + 1), second)
    assert len(told) == MOST_REASONS
