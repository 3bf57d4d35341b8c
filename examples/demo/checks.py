"""What a run of the demo left behind, and what of it must hold. Pure: numbers in, verdicts out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reactive_kafka.records import TopicPartition

FOUND_WITHIN_S = 1.0
"""How long after its limit a poison record may be found."""
NO_SPARK = "PySpark is not installed (make setup, or the extra spark)"
NAMED = 5
"""How many of what is wrong a line names."""


@dataclass(frozen=True, slots=True)
class Place:
    """One record: where it stands in the log."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Found:
    """A record reported as poison; times in seconds."""

    place: Place
    age_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``/health/ready`` answered once.

    Attributes:
        at: When, by the monotonic clock.
        status: 200 or 503; 0 where there was no answer in time.
        poison: The records that it named.
    """

    at: float
    status: int
    poison: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known when everything has stopped.

    Attributes:
        unconfirmed: Records whose write the broker did not confirm, by reason.
        produced: channel -> ids of the records that the broker confirmed.
        handled: channel -> id -> how often its handler finished it; of the channels handled record
            by record.
        clicks: Clicks that were counted.
        batches: In how many batches.
        has_spark: Whether Spark counted them; without PySpark a handler does.
        positions: partition -> committed position (None: nothing committed) and end of the log, as
            the broker tells them after the stop.
        own_lag: partition -> lag as the application itself told it last, before the stop.
        held: The record that was left unsettled.
        found: What the poison watch reported.
        answers: What ``/health/ready`` answered, in order.
        settled_at: When the held record was settled after all, by the monotonic clock.
    """

    unconfirmed: Sequence[str]
    produced: Mapping[str, Collection[int]]
    handled: Mapping[str, Mapping[int, int]]
    clicks: int
    batches: int
    has_spark: bool
    positions: Mapping[TopicPartition, tuple[int | None, int]]
    own_lag: Mapping[TopicPartition, int | None]
    held: Place | None
    found: Sequence[Found]
    answers: Sequence[Answer]
    settled_at: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, and what was seen."""

    name: str
    ok: bool
    text: str


def checks(outcome: Outcome) -> list[Check]:
    """Everything that must hold, in the order of the summary."""
    return [
        _confirmed(outcome),
        *_handled(outcome),
        _counted(outcome),
        _committed(outcome),
        _lag(outcome),
        _poison(outcome),
        _health(outcome),
    ]


def _confirmed(outcome: Outcome) -> Check:
    total = sum(map(len, outcome.produced.values()))
    if outcome.unconfirmed:
        text = (
            f"{len(outcome.unconfirmed)} records were not confirmed: {_some(outcome.unconfirmed)}"
        )
        return Check("produced", False, text)
    idle = [channel for channel, ids in outcome.produced.items() if not ids]
    if idle:
        return Check("produced", False, f"nothing was produced for {', '.join(idle)}")
    return Check("produced", True, f"{total} records, each confirmed by the broker")


def _handled(outcome: Outcome) -> Iterator[Check]:
    for channel, handled in outcome.handled.items():
        produced = set(outcome.produced[channel])
        missing = sorted(produced - handled.keys())
        strange = sorted(handled.keys() - produced)
        twice = sum(times > 1 for times in handled.values())
        found = len(produced) - len(missing)
        text = f"{len(produced)} produced, {found} handled, {twice} of them more than once"
        if missing:
            text += f"; never handled: {_some(missing)}"
        if strange:
            text += f"; handled and not produced: {_some(strange)}"
        yield Check(channel, not missing and not strange, text)


def _counted(outcome: Outcome) -> Check:
    produced = len(outcome.produced["clicks"])
    text = f"{produced} produced, {outcome.clicks} "
    if outcome.has_spark:
        text += f"rows counted by Spark in {outcome.batches} batches"
    else:
        text += f"counted without Spark in {outcome.batches} batches: {NO_SPARK}"
    return Check("clicks", outcome.clicks == produced, text)


def _committed(outcome: Outcome) -> Check:
    behind = [
        f"{partition}: committed {'nothing' if committed is None else committed}, end {end}"
        for partition, (committed, end) in sorted(outcome.positions.items())
        if (committed or 0) != end
    ]
    count = len(outcome.positions)
    text = f"the position is the end of the log on {count - len(behind)} of {count} partitions"
    if behind:
        text += f"; {_some(behind)}"
    return Check("committed", bool(count) and not behind, text)


def _lag(outcome: Outcome) -> Check:
    wrong = [
        f"{partition}: {outcome.own_lag.get(partition)}"
        for partition in sorted(outcome.positions)
        if outcome.own_lag.get(partition) != 0
    ]
    count = len(outcome.positions)
    text = f"0 by the application's own account on {count - len(wrong)} of {count} partitions"
    return Check("lag", not wrong, f"{text}; {_some(wrong)}" if wrong else text)


def _poison(outcome: Outcome) -> Check:
    held = outcome.held
    if held is None:
        return Check("poison", False, "no record was left unsettled")
    other = [found for found in outcome.found if found.place != held]
    if other:
        return Check(
            "poison", False, f"not poison, but reported: {_some([found.place for found in other])}"
        )
    found = next(iter(outcome.found), None)
    if found is None:
        return Check("poison", False, f"{held} was left unsettled and never found")
    late_s = found.age_s - found.limit_s
    text = f"{held} was found {late_s:.3f} s after its limit of {found.limit_s:g} s"
    return Check("poison", 0 <= late_s <= FOUND_WITHIN_S, text)


def _health(outcome: Outcome) -> Check:
    ask = "GET /health/ready"
    red = next((answer for answer in outcome.answers if is_red_for(answer, outcome.held)), None)
    if red is None:
        return Check("health", False, f"{ask} never answered 503 with the poison record in it")
    settled_at = outcome.settled_at
    if settled_at is None:
        return Check("health", False, f"{ask} answered 503 naming it, and it was never settled")
    green = next(
        (answer for answer in outcome.answers if answer.status == 200 and answer.at > settled_at),
        None,
    )
    if green is None or outcome.answers[-1].status != 200:
        return Check(
            "health",
            False,
            f"{ask} answered 503 naming it, and never 200 to the end after it was settled",
        )
    after_s = green.at - settled_at
    return Check(
        "health",
        True,
        f"{ask} answered 503 naming it, and 200 again {after_s:.1f} s after it was settled",
    )


def is_red_for(answer: Answer, place: Place | None) -> bool:
    """Whether an answer is a 503 that names the record at *place*."""
    return answer.status == 503 and place in answer.poison


def _some(values: Sequence[object]) -> str:
    more = f" and {len(values) - NAMED} more" if len(values) > NAMED else ""
    return ", ".join(map(str, values[:NAMED])) + more


def summary(done: Sequence[Check]) -> list[str]:
    """A line for each check, and a last one that says whether all of them hold."""
    shown = [
        "",
        *(f"{'ok' if check.ok else 'FAILED':<7} {check.name:<10} {check.text}" for check in done),
    ]
    failed = [check.name for check in done if not check.ok]
    return [*shown, f"failed: {', '.join(failed)}" if failed else "all of it holds"]
