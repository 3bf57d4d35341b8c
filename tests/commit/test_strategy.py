"""The commit strategies: what each commits, what none may, and loading one of the user's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Committed, IncomingSettings, TopicPartition
from reactive_kafka.commit.commit_engine import CommitRequest
from reactive_kafka.commit.strategy import (
    CommitStrategy,
    LatestCommits,
    NoCommits,
    Progress,
    ThrottledCommits,
    strategy_for,
)
from reactive_kafka.errors import ConfigError
from tests.commit.engines import CommitEngine
from tests.tracking.values import tracker_of

A = TopicPartition("orders", 0)
NOW = 100.0


class Custom:
    """A strategy as a user writes one."""

    interval_s: float | None = 2.0
    commits_at_ack = False

    def __init__(self, answer: Callable[[Progress, float], Any]) -> None:
        self._answer = answer

    def position(self, progress: Progress, now: float) -> int | None:
        answer: int | None = self._answer(progress, now)
        return answer


class Derived(LatestCommits):
    """Not the built-in one any more."""


def tracked(strategy: CommitStrategy, records: int = 10) -> tuple[CommitEngine, Any]:
    """An engine with one partition, in which records from offset 0 on have been delivered."""
    engine, tracker = CommitEngine(strategy), tracker_of(A)
    engine.begin(1, [A])
    engine.replace(tracker)
    tracker.deliver(range(records), records)
    return engine, tracker


def planned(engine: CommitEngine, *, is_last: bool = False) -> int | None:
    """The position that is due, which the broker stores at once; None if none is."""
    plan = engine.plan(NOW, is_last=is_last)
    if plan is None:
        return None
    engine.confirm(plan, NOW)
    return plan.offsets[A].offset


def settings(commit_strategy: str, **more: Any) -> IncomingSettings:
    return IncomingSettings(
        name="orders",
        topics=("orders",),
        group_id="g",
        commit_strategy=commit_strategy,
        commit_interval_s=7.0,
        **more,
    )


# -- the built-in ones


def test_latest_commits_no_further_than_the_first_unsettled_record() -> None:
    engine, tracker = tracked(LatestCommits(5.0))
    tracker.settle(0)
    tracker.settle(2)
    assert planned(engine) == 1
    tracker.settle(1)
    assert planned(engine) == 3


def test_unsafe_latest_commits_after_the_highest_settled_record() -> None:
    engine, tracker = tracked(LatestCommits(5.0, is_unsafe=True))
    tracker.settle(4)
    assert planned(engine) == 5
    tracker.settle(2)
    assert planned(engine) is None
    assert tracker.committable == 0


def test_a_strategy_that_is_derived_from_latest_is_kept_safe() -> None:
    engine, tracker = tracked(Derived(5.0, is_unsafe=True))
    tracker.settle_range(0, 2)
    tracker.settle(4)
    assert planned(engine) == 2


def test_ignore_commits_nothing_even_at_the_end() -> None:
    engine, tracker = tracked(NoCommits())
    tracker.settle_range(0, 10)
    assert planned(engine) is None
    assert planned(engine, is_last=True) is None


@pytest.mark.parametrize(
    ("name", "kind", "interval_s", "commits_at_ack"),
    [
        ("throttled", ThrottledCommits, 7.0, False),
        ("latest", LatestCommits, 7.0, True),
        ("ignore", NoCommits, None, False),
    ],
)
def test_the_built_in_ones_go_by_their_names(
    name: str, kind: type, interval_s: float | None, commits_at_ack: bool
) -> None:
    strategy = strategy_for(settings(name))
    assert type(strategy) is kind
    assert (strategy.interval_s, strategy.commits_at_ack) == (interval_s, commits_at_ack)


@pytest.mark.parametrize("is_unsafe", [False, True])
def test_latest_is_unsafe_where_the_setting_says_so(is_unsafe: bool) -> None:
    strategy = strategy_for(settings("latest", commit_latest_unsafe=is_unsafe))
    assert isinstance(strategy, LatestCommits)
    assert strategy.is_unsafe is is_unsafe


# -- a custom one


def test_a_custom_strategy_is_told_how_far_a_partition_has_come() -> None:
    asked = []
    engine, tracker = tracked(Custom(lambda progress, now: asked.append((progress, now))))
    tracker.settle(0)
    tracker.settle(3)
    assert planned(engine) is None
    assert planned(engine, is_last=True) is None
    assert asked == [(Progress(A, None, 1, 4), NOW), (Progress(A, None, 1, 4, is_last=True), NOW)]


def test_a_custom_strategy_is_not_asked_where_nothing_is_new() -> None:
    asked: list[Progress] = []

    def answer(progress: Progress, now: float) -> int:
        asked.append(progress)
        return progress.safe

    engine, tracker = tracked(Custom(answer))
    tracker.settle(1)
    assert planned(engine) is None
    tracker.settle(0)
    assert planned(engine) == 2
    assert planned(engine) is None
    assert len(asked) == 1


def test_a_custom_strategy_may_commit_less_and_never_more_than_what_is_safe() -> None:
    engine, tracker = tracked(
        Custom(lambda progress, now: 3 if progress.committed is None else progress.highest)
    )
    tracker.settle_range(0, 5)
    tracker.settle(7)
    assert planned(engine) == 3
    assert planned(engine) == 5


def test_what_a_custom_strategy_has_committed_already_is_no_commit() -> None:
    engine, tracker = tracked(Custom(lambda progress, now: progress.safe // 4 * 4))
    tracker.settle_range(0, 5)
    assert planned(engine) == 4
    tracker.settle_range(0, 7)
    assert planned(engine) is None
    tracker.settle_range(0, 8)
    assert planned(engine) == 8
    assert engine.refused is None


def test_a_custom_strategy_does_not_go_back_behind_a_commit_that_may_land_yet() -> None:
    wanted = [6, 4, 6]
    engine, tracker = tracked(Custom(lambda progress, now: wanted.pop(0)))
    tracker.settle_range(0, 8)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=True)
    assert planned(engine) is None
    assert planned(engine) == 6


def test_a_custom_strategy_may_go_back_behind_a_commit_that_was_refused() -> None:
    wanted = [6, 4]
    engine, tracker = tracked(Custom(lambda progress, now: wanted.pop(0)))
    tracker.settle_range(0, 8)
    plan = engine.plan(NOW)
    assert plan is not None
    engine.fail(plan, is_unknown=False)
    assert planned(engine) == 4


@pytest.mark.parametrize("answer", [-1, True, 2.0, "3", object()])
def test_an_answer_that_is_no_position_commits_nothing_and_is_kept(answer: object) -> None:
    engine, tracker = tracked(Custom(lambda progress, now: answer))
    tracker.settle(0)
    assert planned(engine) is None
    assert repr(answer) in str(engine.refused)
    assert "orders-0" in str(engine.refused)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("no rule for it"),
        asyncio.CancelledError(),
        SystemExit(1),
        GeneratorExit(),
        KeyboardInterrupt(),
    ],
)
def test_a_strategy_that_raises_for_one_partition_holds_back_no_other(error: BaseException) -> None:
    def raises(progress: Progress, now: float) -> int:
        if progress.partition == A:
            raise error
        return progress.safe

    engine, tracker = tracked(Custom(raises))
    other = tracker_of(TopicPartition("orders", 1))
    other.deliver(range(2), 2)
    engine.table.assign(engine.generation, [other.partition])
    engine.replace(other)
    tracker.settle(0)
    other.settle(0)
    plan = engine.plan(NOW)
    assert plan is not None
    assert plan.offsets == {other.partition: Committed(1)}
    assert engine.refused is not None
    assert engine.refused.__cause__ is error
    assert engine.refused.partition == A


# -- loading a custom one


def make(settings: IncomingSettings) -> Custom:
    """What ``commit_strategy = "tests.commit.test_strategy:make"`` names."""
    strategy = Custom(lambda progress, now: progress.safe)
    strategy.interval_s = settings.commit_interval_s / 2
    return strategy


class OfSettings(Custom):
    """One that is made by its class."""

    def __init__(self, settings: IncomingSettings) -> None:
        super().__init__(lambda progress, now: None)
        self.interval_s = settings.commit_interval_s


class Asynchronous(OfSettings):
    """Nobody awaits it."""

    async def position(self, progress: Progress, now: float) -> int | None:  # type: ignore[override]
        return progress.safe


class WithoutInterval:
    """It does not say how often it is to be asked."""

    commits_at_ack = False

    def __init__(self, settings: IncomingSettings) -> None:
        pass

    def position(self, progress: Progress, now: float) -> int | None:
        return None


class Unwilling(WithoutInterval):
    """It cannot be made."""

    def __init__(self, settings: IncomingSettings) -> None:
        raise RuntimeError("no licence")


class TooOften(WithoutInterval):
    """Its interval is none."""

    interval_s = 0


class Undecided(WithoutInterval):
    """It does not say when it is to be asked."""

    interval_s = 1.0
    commits_at_ack = "often"  # type: ignore[assignment]


async def later(settings: IncomingSettings) -> Custom:
    """Nobody awaits it."""
    return make(settings)


class CalledLater:
    """Nobody awaits what its objects return."""

    async def __call__(self, settings: IncomingSettings) -> Custom:
        return make(settings)


called_later = CalledLater()
by_hand = lambda settings: later(settings)  # noqa: E731
ready = Custom(lambda progress, now: progress.safe)
HERE = "tests.commit.test_strategy"


def test_a_custom_strategy_is_an_instance_or_is_made_of_the_settings() -> None:
    assert strategy_for(settings(f"{HERE}:ready")) is ready
    assert strategy_for(settings(f"{HERE}:make")).interval_s == 3.5
    assert strategy_for(settings(f"{HERE}:OfSettings")).interval_s == 7.0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "throtled",
            "there is no such strategy; allowed: throttled, latest, ignore, checkpoint or module:object",
        ),
        ("no_such_module:x", "there is no module 'no_such_module'"),
        (f"{HERE}:nothing", "has no 'nothing'"),
        (
            f"{HERE}:NOW",
            "expected an object with a method position, or a class or function that makes one, not float",
        ),
        (
            f"{HERE}:planned",
            "called with the settings of channel 'orders', it raised AttributeError",
        ),
        (
            f"{HERE}:Unwilling",
            "called with the settings of channel 'orders', it raised RuntimeError: no licence",
        ),
        (
            f"{HERE}:later",
            "it is async, but its result is needed at once: write a plain function; allowed: throttled",
        ),
        (
            f"{HERE}:called_later",
            "it is async, but its result is needed at once: write a plain function; allowed",
        ),
        (f"{HERE}:by_hand", "it is async, but its result is needed at once"),
        (f"{HERE}:WithoutInterval", "WithoutInterval.interval_s is missing"),
        (
            f"{HERE}:Asynchronous",
            "Asynchronous.position must be a plain function of (progress, now)",
        ),
        (f"{HERE}:TooOften", "TooOften.interval_s = 0: allowed are seconds above 0, or None"),
        (f"{HERE}:Undecided", "Undecided.commits_at_ack = 'often': allowed are True and False"),
    ],
)
def test_a_custom_strategy_that_is_no_use_is_named_with_what_is_allowed(
    name: str, says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        strategy_for(settings(name))
    assert f"channel 'orders': commit_strategy = {name!r}: " in str(raised.value)
    assert says in str(raised.value)


# -- whatever happens

ANSWERS = st.sampled_from([None, 0, 1, 3, 5, 8, 30, -1, "2"])


@hypothesis.settings(deadline=None)
@given(
    kind=st.sampled_from(["throttled", "latest", "unsafe", "ignore", "custom"]),
    steps=st.lists(
        st.one_of(
            # Settles this record.
            st.integers(0, 19),
            st.sampled_from(["plan", "ok", "failed", "unknown", "deliver"]),
        ),
        max_size=60,
    ),
    data=st.data(),
)
def test_no_strategy_passes_what_is_unsettled_or_goes_back(
    kind: str, steps: list[int | str], data: Any
) -> None:
    strategies: dict[str, CommitStrategy] = {
        "throttled": ThrottledCommits(5.0),
        "latest": LatestCommits(5.0),
        "unsafe": LatestCommits(5.0, is_unsafe=True),
        "ignore": NoCommits(),
        "custom": Custom(lambda progress, now: data.draw(ANSWERS)),
    }
    engine, tracker = tracked(strategies[kind])
    unsettled, now, delivered = set(range(10)), 0.0, 10
    plan: CommitRequest | None = None
    confirmed, may_land = 0, 0
    for step in steps:
        now += 0.6
        if isinstance(step, int) and step < delivered:
            tracker.settle(step)
            unsettled.discard(step)
        elif step == "deliver":
            tracker.deliver([delivered], delivered + 1)
            unsettled.add(delivered)
            delivered += 1
        elif step == "plan" and plan is None:
            safe = min(unsettled, default=delivered)
            highest = max(set(range(delivered)) - unsettled, default=-1) + 1
            plan = engine.plan(now)
            if plan is None:
                wanted = {"throttled": safe, "latest": safe, "unsafe": max(safe, highest)}.get(
                    kind, 0
                )
                assert wanted <= confirmed, "what is due is not committed"
                continue
            position = plan.offsets[A].offset
            assert kind != "ignore"
            assert position <= (max(safe, highest) if kind == "unsafe" else safe), (
                "it passes an unsettled record"
            )
            assert position >= max(confirmed, may_land), "it goes back"
            assert position > confirmed or plan.repeated, "it says what is known"
            if kind in ("throttled", "latest"):
                assert position == safe
        elif step in ("ok", "failed", "unknown") and plan is not None:
            position = plan.offsets[A].offset
            if step == "ok":
                engine.confirm(plan, now)
                confirmed, may_land = position, max(may_land, position) if not plan.repeated else 0
            else:
                engine.fail(plan, is_unknown=step == "unknown")
                may_land = max(may_land, position) if step == "unknown" else may_land
            plan = None
        assert tracker.committed == (confirmed or None)
