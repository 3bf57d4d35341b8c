"""What applications say of single records, commits and outages, number by number, against what
happened.

- V1: a dead letter or a delayed retry that was told stands in the topic that was told; the delay is
  that of the topic.
- V2: poison has the limit of the settings, and an age between that limit and the time since the
  record was fetched; no record is poison no longer that was none.
- V3: a retry that was told names the attempt that has failed, waits no longer than it may, and
  comes when it was told.
- V4: who waited for handlers has not waited longer than it may, for no more records than it had.
- V5: an outage of a broker or a store that is over was as long as it was told to be away.
- V6: a commit that failed is one that was answered so, and names partitions of that request.
- V7: a rebalance names the generation, and partitions that the group gave or took.
- V8: who lost a row in the store names the tokens: its own, and what was found.
- V9: a Spark batch took no longer than since it began, and had no more records than its ranges.
- V10: a session is over once until it is up again; a loop was blocked for as long as it stood
  still.
- V11: what was left unstored is no more than what was read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from math import isclose

from tests.simulation.checker import NEVER, History, Rule, Said, Violation
from tests.simulation.history import Event, Partition

A_MOMENT_S = 0.01
SLACK_S = 3.0
"""What tells of an end may come so much later: a look, or the end of what was awaited."""
FIRST_S = 5.0
"""So long after a first failure it is told at the latest."""


def _of(history: History, *names: str) -> Iterator[Said]:
    return (said for said in history.case.said if said.name in names)


def _place(said: Said) -> tuple[Partition, int]:
    return said.fields["partition"], said.fields["offset"]


def _wrong(rule: str, said: Said, text: str) -> Violation:
    return Violation(rule, f"{said.who} said {said.name} at {said.at:.3f}: {text}", said.until)


class _Fetched:
    """How many records each application had fetched, by then."""

    def __init__(self, history: History) -> None:
        self._at: dict[str, list[int]] = defaultdict(list)
        self._sums: dict[str, list[int]] = defaultdict(list)
        for index, event in history.of("fetched"):
            sums = self._sums[event.who]
            sums.append(event.count + (sums[-1] if sums else 0))
            self._at[event.who].append(index)
        # Spark reads ranges by itself, again and again where jobs fail, and nothing is fetched for
        # them.
        self._is_known = not history.promise.counts_offsets

    def until(self, said: Said) -> int:
        if not self._is_known:
            return NEVER
        place = bisect_left(self._at[said.who], said.until)
        return self._sums[said.who][place - 1] if place else 0


def _written(history: History) -> Iterator[Violation]:
    """V1."""
    written = defaultdict(set)
    for _, event in history.of("letter", "copy"):
        written[event.tp, event.offset].add(event.note.removeprefix("is ").rpartition("-")[0])
    for said in _of(history, "RecordDeadLettered", "RecordDelayed"):
        place, to = _place(said), said.fields["to"]
        if to not in written[place]:
            yield _wrong(
                "V1", said, f"{place} does not stand in {to}, but in {sorted(written[place])}"
            )
        if said.name == "RecordDelayed":
            delay_ms = int(re.sub(r".*_", "", to))
            if not isclose(said.fields["delay_s"], delay_ms / 1000):
                yield _wrong(
                    "V1",
                    said,
                    f"its delay is {said.fields['delay_s']} s, that of {to} is {delay_ms} ms",
                )


def _poison(history: History) -> Iterator[Violation]:
    """V2."""
    limit_s = history.promise.max_age_s
    told: dict[tuple[str, tuple[Partition, int]], float] = {}
    for said in _of(history, "RecordPoisoned", "PoisonSettled"):
        key, age_s = (said.who, _place(said)), said.fields["age_s"]
        fetched_at = _fetched_at(history, said)
        if fetched_at is None or age_s > said.at - fetched_at + A_MOMENT_S:
            yield _wrong(
                "V2", said, f"{key[1]} is {age_s:.3f} s old, and was fetched at {fetched_at}"
            )
        if said.name == "PoisonSettled":
            if key not in told:
                yield _wrong("V2", said, f"{key[1]} was no poison")
            elif age_s < told.pop(key) - A_MOMENT_S:
                yield _wrong("V2", said, f"{key[1]} has become younger")
            continue
        told[key] = age_s
        if not isclose(said.fields["limit_s"], limit_s) or age_s < limit_s:
            yield _wrong(
                "V2",
                said,
                f"an age of {age_s:.3f} s, a limit of {said.fields['limit_s']}, set to {limit_s}",
            )
        behind = sum(one > key[1][1] for one in history.offsets.get(key[1][0], ()))
        if not 0 <= said.fields["waiting"] <= behind:
            yield _wrong(
                "V2",
                said,
                f"{said.fields['waiting']} records wait behind it, and there are {behind}",
            )


def _fetched_at(history: History, said: Said) -> float | None:
    """When the application fetched the record first."""
    tp, offset = _place(said)
    for index, event in history.of("fetched"):
        if (
            index < said.until
            and event.who == said.who
            and event.tp == tp
            and event.offset <= offset < event.until
        ):
            return event.at
    return None


def _retried(history: History) -> Iterator[Violation]:
    """V3."""
    ends: dict[tuple[str, Partition, int], list[Event]] = defaultdict(list)
    begins: dict[tuple[str, Partition, int], list[tuple[int, Event]]] = defaultdict(list)
    for index, event in history.of("end", "begin"):
        if event.kind == "begin":
            begins[event.who, event.tp, event.offset].append((index, event))
        elif event.note == "raised":
            ends[event.who, event.tp, event.offset].append(event)
    # Earlier ones that no attempt has followed: another client of the application may have got the
    # record meanwhile, whose attempts count from 1 again.
    waiting: dict[tuple[str, Partition, int], list[Said]] = defaultdict(list)
    for said in _of(history, "HandlerRetried"):
        place, attempt, wait_s = _place(said), said.fields["attempt"], said.fields["wait_s"]
        if not 0 <= wait_s <= history.promise.backoff_s:
            yield _wrong(
                "V3",
                said,
                f"{place} waits for {wait_s} s, at most {history.promise.backoff_s} s are set",
            )
        failed = [
            one
            for one in ends[said.who, *place]
            if one.attempt == attempt and one.at <= said.at + A_MOMENT_S
        ]
        if not failed and not _is_several(history):
            yield _wrong("V3", said, f"no attempt {attempt} of {place} has failed")
        again = [one for one in begins[said.who, *place] if one[1].attempt > 1]
        earlier = [
            one
            for one in waiting[said.who, *place]
            if not any(
                one.until <= index < said.until and begun.attempt == one.fields["attempt"] + 1
                for index, begun in again
            )
        ]
        waiting[said.who, *place] = [*earlier, said]
        next_one = next((one for index, one in again if index >= said.until), None)
        if next_one is None or next_one.attempt != attempt + 1:
            continue
        is_of_earlier = any(
            one.fields["attempt"] == attempt and _is_due(one, next_one) for one in earlier
        )
        if not (_is_due(said, next_one) or is_of_earlier):
            yield _wrong(
                "V3", said, f"{place} was to wait for {wait_s} s, and began at {next_one.at}"
            )


def _is_due(said: Said, begin: Event) -> bool:
    """The attempt began when the wait that was told was over."""
    return begin.at >= said.at + said.fields["wait_s"] - A_MOMENT_S


def _is_several(history: History) -> bool:
    """Another handler of a broadcast, or middleware, has ends that are not noted."""
    return history.promise.broadcast


def _waited(history: History) -> Iterator[Violation]:
    """V4."""
    promise, fetched = history.promise, _Fetched(history)
    for said in _of(history, "HandlerAbandoned", "StopWaits"):
        most_s = promise.drain_s if said.fields.get("during", "stop") == "stop" else promise.grace_s
        name = "waited_s" if said.name == "HandlerAbandoned" else "left_s"
        most_s = max(most_s, promise.drain_s if promise.spark else 0.0) + SLACK_S
        if not 0 <= said.fields[name] <= most_s + _stalled_s(history):
            yield _wrong(
                "V4", said, f"{name} is {said.fields[name]:.3f} s, and {most_s:.1f} s were allowed"
            )
        # Handlers of partitions that have gone count as no records.
        least = 0 if said.name == "StopWaits" else 1
        if not least <= said.fields["records"] <= fetched.until(said):
            yield _wrong(
                "V4",
                said,
                f"{said.fields['records']} records of {fetched.until(said)} that it ever fetched",
            )


def _stalled_s(history: History) -> float:
    """How long the process stood still, all in all: a clock that was moved is no wait."""
    open_ones: dict[str, float] = {}
    stalled = 0.0
    for _, event in history.of("fault", "calm"):
        if event.note.startswith("stall"):
            if event.kind == "fault":
                open_ones[event.note] = event.at
            else:
                stalled += event.at - open_ones.pop(event.note, event.at)
    return stalled


def _away(history: History) -> Iterator[Violation]:
    """V5: since one of the times that it was told, or a little longer; of several clients each
    tells for itself.
    """
    stalled_s = _stalled_s(history)
    for begins, ends in (
        ("BrokerUnavailable", "BrokerAvailable"),
        ("StoreUnavailable", "StoreAvailable"),
    ):
        since: dict[tuple[str, str], list[float]] = defaultdict(list)
        for said in _of(history, begins, ends):
            key = said.who, said.fields["channel"]
            if said.name == begins:
                since[key].append(said.at)
                continue
            away_s = said.fields["away_s"]
            waited = [said.at - told_at for told_at in since[key]]
            if not any(one - A_MOMENT_S <= away_s <= one + FIRST_S + stalled_s for one in waited):
                yield _wrong(
                    "V5",
                    said,
                    f"away for {away_s:.3f} s, told {[round(one, 3) for one in waited]} s before",
                )


def _failed_commits(history: History) -> Iterator[Violation]:
    """V6."""
    sent: dict[int, set[Partition]] = defaultdict(set)
    for _, event in history.of("send"):
        sent[event.call].add(event.tp)
    answers: dict[str, list[tuple[int, Event]]] = defaultdict(list)
    for index, event in history.of("answer"):
        answers[event.who].append((index, event))
    for said in _of(history, "CommitFailed"):
        if history.promise.store:
            # The positions of Kafka, where that is beside the store, are not noted.
            continue
        own = [event for index, event in answers[said.who] if index < said.until]
        # Of several clients.
        like = [one for one in own[-4:] if one.note == said.fields["outcome"]]
        if own and not any(said.fields["partitions"] <= sent[one.call] for one in like):
            was = [one.note for one in own[-4:]]
            yield _wrong(
                "V6",
                said,
                f"{said.fields['outcome']} of {sorted(said.fields['partitions'])}, answers were {was}",
            )


def _rebalanced(history: History) -> Iterator[Violation]:
    """V7."""
    for said in _of(history, "Rebalanced"):
        if not any(tp[0] in ("orders",) for tp in said.fields["partitions"]):
            continue
        own = [
            event
            for index, event in history.of("assigned")
            if index < said.until and event.who == said.who
        ]
        given = {event.tp for event in own}
        if not said.fields["partitions"] <= given:
            yield _wrong(
                "V7", said, f"{sorted(said.fields['partitions'] - given)} were never given"
            )
        generation = said.fields["generation"]
        if said.fields["kind"] == "assigned" and generation not in {event.offset for event in own}:
            yield _wrong("V7", said, f"there was no generation {generation}")


def _fenced(history: History) -> Iterator[Violation]:
    """V8."""
    for said in _of(history, "CheckpointFenced"):
        claims = [
            event
            for index, event in history.of("claim")
            if index < said.until and event.tp == _tp(said)
        ]
        tokens = {event.token for event in claims}
        own = {event.token for event in claims if event.who == said.who}
        if said.fields["token"] not in own:
            yield _wrong("V8", said, f"its token was never {said.fields['token']}")
        if (
            said.fields["found"] not in tokens | {None}
            or said.fields["found"] == said.fields["token"]
        ):
            yield _wrong("V8", said, f"nobody has claimed it with token {said.fields['found']}")


def _tp(said: Said) -> Partition:
    tp: Partition = said.fields["partition"]
    return tp


def _batches(history: History) -> Iterator[Violation]:
    """V9."""
    fetched = _Fetched(history)
    for said in _of(history, "SparkBatchEnded"):
        took_s, records = said.fields["duration_s"], said.fields["records"]
        if not 0 <= took_s <= said.at + A_MOMENT_S:
            yield _wrong("V9", said, f"it took {took_s:.3f} s")
        if not 0 < records <= fetched.until(said) or said.fields["attempt"] < 1:
            text = f"{records} records of {fetched.until(said)} that it ever fetched, attempt {said.fields['attempt']}"
            yield _wrong("V9", said, text)
        if not 0 <= said.fields["rejected"] <= records:
            yield _wrong("V9", said, f"{said.fields['rejected']} rejected of {records}")


def _sessions(history: History) -> Iterator[Violation]:
    """V10."""
    over: dict[tuple[str, str], int] = defaultdict(int)
    stalled_s = _stalled_s(history)
    for said in _of(history, "SessionOver", "SessionUp", "LoopBlocked"):
        if said.name == "LoopBlocked":
            if not 0 < said.fields["lag_s"] <= stalled_s + A_MOMENT_S:
                yield _wrong(
                    "V10",
                    said,
                    f"blocked for {said.fields['lag_s']:.3f} s, it stood still for {stalled_s:.3f} s",
                )
            continue
        key = said.who, said.fields["channel"]
        over[key] += 1 if said.name == "SessionOver" else -1
        if over[key] < 0:
            yield _wrong("V10", said, "no session was over")


def _unstored(history: History) -> Iterator[Violation]:
    """V11."""
    for said in _of(history, "SettledNotStored"):
        most = sum(history.case.log_end.get(tp, 0) for tp in said.fields["partitions"])
        if not 0 < said.fields["records"] <= most:
            yield _wrong("V11", said, f"{said.fields['records']} records of {most} that there are")


EVENT_RULES: tuple[Rule, ...] = (
    _written,
    _poison,
    _retried,
    _waited,
    _away,
    _failed_commits,
    _rebalanced,
    _fenced,
    _batches,
    _sessions,
    _unstored,
)
