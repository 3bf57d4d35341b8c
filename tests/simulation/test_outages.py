"""Long outages: some seeds, and what the judge says of runs that are broken by hand."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from reactive_kafka import App, Committed
from reactive_kafka.broker.memory.memory_positions import CommitEntry
from reactive_kafka.observe.events import BrokerAvailable, RecordPoisoned
from reactive_kafka.testing import FakeClock
from tests.app.helpers import make_broker, tp
from tests.simulation.loop import run_seeded
from tests.simulation.outages import AWAY, EXPECTED, LENGTHS_S, LIMIT_S, MAIN, Outage, run_outage
from tests.simulation.run import silence

SEEDS, CHUNK = 96, 8


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_outage_of_these_seeds_is_sat_out_named_and_over_within_seconds_of_its_end(
    first: int,
) -> None:
    with silence():
        for seed in range(first, first + CHUNK):
            played = run_outage(seed)
            assert not played.violations, "\n".join([str(played), *played.violations])


def test_every_application_and_outage_is_drawn() -> None:
    drawn = Counter[str]()
    cells = set()
    for seed in range(1500):
        outage = Outage(seed)
        drawn.update([outage.shape, outage.what, f"{outage.lasts_s:g} s"])
        drawn["long"] += outage.has_long
        cells.add((outage.shape, outage.what))
    assert [what for what in EXPECTED if not drawn[what] and what != "letter"] == []
    assert cells == {(shape, what) for shape, whats in AWAY.items() for what in whats}
    assert max(LENGTHS_S) > 120 > LIMIT_S > min(LENGTHS_S) > 30


def outage_of(shape: str, what: str) -> Outage:
    outage = Outage(0)
    outage.shape, outage.what, outage.lasts_s, outage.is_busy, outage.has_long = (
        shape,
        what,
        35.0,
        True,
        False,
    )
    outage.takes_s = 0.0
    return outage


def rules(outage: Outage) -> set[str]:
    return {said.partition(",")[0] for said in outage.violations}


def play(outage: Outage) -> Outage:
    with silence():
        run_seeded(outage.play, 0)
    return outage


def test_a_run_that_keeps_its_promises_is_not_blamed() -> None:
    assert play(outage_of("plain", "cluster")).violations == []


def test_an_application_that_says_that_it_is_ready_is_seen() -> None:
    outage = outage_of("plain", "cluster")
    # Nothing is away.
    outage._gate = lambda app: (lambda: None, lambda: None)  # type: ignore[method-assign]
    assert rules(play(outage)) == {"L2"}


def test_an_application_that_comes_back_late_is_seen() -> None:
    outage = outage_of("plain", "cluster")

    def gate(app: App) -> object:
        broker = outage.brokers[MAIN]
        loop = asyncio.get_running_loop()
        return (lambda: setattr(broker, "down", True)), lambda: loop.call_later(
            15.0, setattr, broker, "down", False
        )

    outage._gate = gate  # type: ignore[method-assign,assignment]
    assert rules(play(outage)) >= {"L3"}


def test_an_application_that_fails_for_an_outage_is_seen() -> None:
    outage = outage_of("plain", "cluster")
    # Its handlers take longer than they may, and nobody says so.
    outage.takes_s = 70.0
    assert "L1" in rules(play(outage))


def judged(outage: Outage) -> list[str]:
    outage._judge()
    return outage.violations


def test_poison_of_a_handler_that_was_quick_and_none_of_one_that_was_slow_are_seen() -> None:
    outage = outage_of("plain", "cluster")
    outage.had = {(0, 1): LIMIT_S + 5}
    details = {"limit_s": LIMIT_S, "waiting": 0, "on_poison": "warn"}
    outage.recorder.on(
        RecordPoisoned(channel="orders", partition=tp(), offset=0, age_s=61.0, **details)
    )  # type: ignore[arg-type]
    assert [said[:10] for said in judged(outage)] == ["L6, (0, 0)", "L6, (0, 1)"]


def test_an_event_with_a_wrong_duration_is_seen() -> None:
    outage = outage_of("plain", "cluster")
    outage.recorder.on(BrokerAvailable(channel="orders", away_s=36_000.0))
    assert rules_of(judged(outage)) == {"L7"}


def rules_of(said: list[str]) -> set[str]:
    return {one.partition(",")[0] for one in said}


def test_a_position_past_a_record_without_its_result_is_seen() -> None:
    async def main(clock: FakeClock) -> Outage:
        outage = outage_of("output", "cluster")
        outage.brokers = {MAIN: make_broker(2)}
        outage.brokers[MAIN].create_topic("orders", 2)
        outage._produce(b"1")
        outage._committed(CommitEntry(0.0, "a", 1, {tp(): Committed(1)}))
        return outage

    assert rules(run_seeded(main, 0)) == {"L5"}
