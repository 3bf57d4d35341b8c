"""Rounds with a rest after each: some seeds, and what the judge says of applications that are
broken by hand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka import App
from tests.simulation.loop import run_seeded
from tests.simulation.rounds import EXPECTED, Rounds, run_rounds
from tests.simulation.run import silence

SEEDS, CHUNK = 48, 6


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_grows_from_rest_to_rest_and_nothing_hangs_in_these_seeds(first: int) -> None:
    with silence():
        for seed in range(first, first + CHUNK):
            played = run_rounds(seed)
            assert not played.violations, "\n".join([str(played), *played.violations])


def test_every_application_and_everything_that_may_happen_is_drawn() -> None:
    drawn = Counter[str]()
    for seed in range(300):
        rounds = Rounds(seed)
        drawn.update([rounds.shape, *rounds.happens])
    assert [
        what
        for what in EXPECTED
        if not drawn[what] and what not in ("letter", "cancelled handler call")
    ] == []


def test_the_same_seed_is_the_same_run() -> None:
    with silence():
        first, second = run_rounds(3), run_rounds(3)
    assert (first.bites, first.sizes) == (second.bites, second.sizes)


def broken(breaks: Callable[[App, Rounds], None]) -> list[str]:
    """What is said of a plain application that somebody breaks before each round."""
    rounds = Rounds(0)
    rounds.shape, rounds.happens, rounds.fails, rounds.strategy = "plain", ["look"], False, "ignore"

    async def look(app: App, emitter: object) -> None:
        breaks(app, rounds)

    rounds._look = look  # type: ignore[method-assign]
    with silence():
        run_seeded(rounds.play, 0)
    return rounds.violations


def test_an_application_that_is_not_broken_is_not_blamed() -> None:
    assert broken(lambda app, rounds: None) == []


def test_a_collection_that_grows_is_named() -> None:
    def grow(app: App, rounds: Rounds) -> None:
        channels: Any = app._run.channels if app._run is not None else None
        channels.__dict__.setdefault("leaks", []).append(len(rounds.sizes))

    assert broken(grow) == [
        "R2, runtime.channels.RunChannels.leaks grows: [1, 2, 3, 4, 5, 6, 7, 8, 9]"
    ]


def test_a_timer_that_outlives_the_application_is_named() -> None:
    def set_one(app: App, rounds: Rounds) -> None:
        if not rounds.sizes:
            asyncio.get_running_loop().call_later(36000, app.channel("orders").facts)

    assert broken(set_one) == [
        "R4, timers outlive the application: {'channel.channel.Channel.facts': 1}"
    ]


def test_a_record_that_is_never_settled_is_no_rest() -> None:
    def lose(app: App, rounds: Rounds) -> None:
        rounds.produced[0, 10**6] = b"lost"

    (said,) = broken(lose)
    assert said.startswith("R1, round 0 does not come to rest")


def test_a_position_past_a_record_that_is_not_settled_is_seen() -> None:
    def forget(app: App, rounds: Rounds) -> None:
        rounds.handled = _Forgetful(rounds.handled)

    assert any(said.startswith("R6, ") for said in broken(forget))


class _Forgetful(set[bytes]):
    """It forgets the first records."""

    def add(self, value: bytes) -> None:
        if value != b"good-1-look-0":
            super().add(value)
