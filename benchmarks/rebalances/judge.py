"""What a rolling restart did to a group, from the journals of its members and of the load. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.figures import percentile
from benchmarks.rebalances.diary import Change, Entry, Handled


@dataclass(frozen=True, slots=True)
class Sent:
    """A record of the load, and when it was sent."""

    at_ns: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartVerdict:
    """What came out. All but *sent* and *lost* is about the time from the first restart on.

    Args:
        sent: Records that were written to the topic.
        kept_revoked: Partitions that were taken from a member and given back to it, each time.
        moved: Partitions whose owner changed, on average over the restarts.
        untouched_pause_s: The longest time without a handled record in a partition that one member
            owned during a whole restart; None if there was no such partition.
        moved_pause_s: The same in a partition whose owner changed.
        age_p99_s: The 99th percentile of the time from the send of a record to the end of its
            handler.
        duplicates: Calls of a handler with a record that one had handled before.
        lost: Records that nobody has handled.
        load_gap_s: The longest time between two records that were sent to one partition: no pause
            can be shorter.
    """

    sent: int
    kept_revoked: int
    moved: float
    untouched_pause_s: float | None
    moved_pause_s: float | None
    age_p99_s: float | None
    duplicates: int
    lost: int
    load_gap_s: float


@dataclass(frozen=True, slots=True)
class _Moment:
    """A handled record of one partition, and who has handled it."""

    at_ns: int
    life: str


def judged(
    sent: Sequence[Sent],
    lives: Mapping[str, Sequence[Entry]],
    restarts_ns: Sequence[int],
    end_ns: int,
) -> RestartVerdict:
    """Return the verdict.

    Args:
        sent: What the load has sent, in its order.
        lives: A name for each process of a member -> what it has written. A member that was
            restarted has several.
        restarts_ns: When each member was told to stop, in order. A restart lasts until the next
            one begins.
        end_ns: When the load ended, and with it the last restart.

    Raises:
        ValueError: A journal names a record that was not sent.
    """
    sent_at = {(one.partition, one.offset): one.at_ns for one in sent}
    first_at: dict[tuple[int, int], int] = {}
    duplicates = 0
    began_ns = restarts_ns[0]
    for record in sorted(_handled(lives), key=lambda one: one.at_ns):
        place = (record.partition, record.offset)
        if place not in sent_at:
            raise ValueError(
                f"a journal names record {record.offset} of partition {record.partition}, "
                "which was never sent"
            )
        if place not in first_at:
            first_at[place] = record.at_ns
        elif record.at_ns >= began_ns:
            duplicates += 1
    ages = [
        (handled_at - sent_at[place]) / 1e9
        for place, handled_at in first_at.items()
        if began_ns <= sent_at[place] < end_ns
    ]
    pauses = _pauses(lives, restarts_ns, end_ns)
    return RestartVerdict(
        sent=len(sent_at),
        kept_revoked=_kept_revoked(lives, began_ns, end_ns),
        moved=sum(pause.is_moved for pause in pauses) / len(restarts_ns),
        untouched_pause_s=max((one.length_s for one in pauses if not one.is_moved), default=None),
        moved_pause_s=max((one.length_s for one in pauses if one.is_moved), default=None),
        age_p99_s=percentile(ages, 0.99) if ages else None,
        duplicates=duplicates,
        lost=len(sent_at.keys() - first_at.keys()),
        load_gap_s=_load_gap_s(sent, began_ns, end_ns),
    )


def _handled(lives: Mapping[str, Sequence[Entry]]) -> Iterator[Handled]:
    for life in lives.values():
        yield from (entry for entry in life if isinstance(entry, Handled))


def _changes(lives: Mapping[str, Sequence[Entry]]) -> list[tuple[str, Change]]:
    """Return the changes of all lives, the earliest first."""
    found = [
        (life, entry)
        for life, written in lives.items()
        for entry in written
        if isinstance(entry, Change)
    ]
    return sorted(found, key=lambda one: one[1].at_ns)


def _kept_revoked(lives: Mapping[str, Sequence[Entry]], began_ns: int, end_ns: int) -> int:
    """Count the partitions that were taken and whose next owner is the one before."""
    # Partition -> who had it when it was taken.
    taken_from: dict[int, str] = {}
    count = 0
    for life, change in _changes(lives):
        for partition in change.partitions:
            if change.kind == "assigned":
                count += taken_from.pop(partition, None) == life
            elif began_ns <= change.at_ns < end_ns:
                taken_from[partition] = life
    return count


@dataclass(frozen=True, slots=True)
class _Pause:
    """The longest time without a handled record, in one partition during one restart."""

    length_s: float
    is_moved: bool


def _pauses(
    lives: Mapping[str, Sequence[Entry]], restarts_ns: Sequence[int], end_ns: int
) -> list[_Pause]:
    by_partition: defaultdict[int, list[_Moment]] = defaultdict(list)
    for life, written in lives.items():
        for entry in written:
            if isinstance(entry, Handled):
                by_partition[entry.partition].append(_Moment(entry.at_ns, life))
    for moments in by_partition.values():
        moments.sort(key=lambda one: one.at_ns)
    changes = _changes(lives)
    found = []
    for start_ns, until_ns in pairwise((*restarts_ns, end_ns)):
        owners: defaultdict[int, set[str]] = defaultdict(set)
        for life, change in changes:
            if change.kind == "assigned" and start_ns <= change.at_ns < until_ns:
                for partition in change.partitions:
                    owners[partition].add(life)
        for partition, moments in by_partition.items():
            around = _around(moments, start_ns, until_ns)
            owned_by = owners[partition] | {moment.life for moment in around}
            times_ns = [moment.at_ns for moment in around]
            if times_ns[-1] < until_ns:
                # Nothing came until the end.
                times_ns.append(until_ns)
            longest_ns = max((later - earlier for earlier, later in pairwise(times_ns)), default=0)
            found.append(_Pause(longest_ns / 1e9, len(owned_by) > 1))
    return found


def _around(moments: list[_Moment], start_ns: int, until_ns: int) -> list[_Moment]:
    """Return those of a restart, with the last one before it and the first one after it."""
    times_ns = [moment.at_ns for moment in moments]
    first = max(0, bisect_left(times_ns, start_ns) - 1)
    return moments[first : bisect_left(times_ns, until_ns) + 1]


def _load_gap_s(sent: Sequence[Sent], began_ns: int, end_ns: int) -> float:
    latest: dict[int, int] = {}
    longest_ns = 0
    for one in sent:
        before_ns = latest.get(one.partition)
        if before_ns is not None and one.at_ns >= began_ns and before_ns < end_ns:
            longest_ns = max(longest_ns, one.at_ns - before_ns)
        latest[one.partition] = one.at_ns
    return longest_ns / 1e9
