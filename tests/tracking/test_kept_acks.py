"""Acks from one owner to the next, through many of them: nothing that is open is ever called
done.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.tracking.metadata.acks import AckMap, decode, encode
from reactive_kafka.tracking.metadata.done import KnownDone
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.app.helpers import tp


@st.composite
def logs(draw: st.DrawFn) -> list[int]:
    """Offsets of a log, with gaps."""
    steps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=40))
    offsets, at = [], draw(st.integers(0, 5))
    for step in steps:
        offsets.append(at)
        at += step
    return offsets


class Owner:
    """One owner of the partition: it begins at the position with what is known, reads on, and
    settles.
    """

    def __init__(self, position: int, kept: AckMap | None) -> None:
        self.tracker = OffsetTracker(tp(), position, committed=position)
        self.tracker.kept = kept
        # Offset -> arrival number.
        self.delivered: dict[int, int] = {}

    def read(self, log: list[int], count: int) -> None:
        """One record after the other, as the intake does it with many."""
        kept = self.tracker.kept
        for offset in [one for one in log if one >= self.tracker.position][:count]:
            if kept is not None and kept.is_done(offset):
                self.tracker.deliver((), offset + 1)
            else:
                self.delivered[offset] = self.tracker.deliver([offset], offset + 1)

    def stored(self, budget: int) -> tuple[int, AckMap | None]:
        """What the next owner finds."""
        position = self.tracker.committable
        done = KnownDone(self.tracker)
        done.look(position)
        open_offsets, until = done.above(position)
        text, _ = encode(open_offsets, position, until, budget) if until > position else ("", 0)
        return position, decode(text, position) if text else None


@given(st.data(), logs())
def test_through_any_number_of_owners_every_record_is_done_and_none_that_was_kept_comes_again(
    data: st.DataObject, log: list[int]
) -> None:
    done: set[int] = set()
    position, kept = 0, None
    for _ in range(data.draw(st.integers(1, 6))):
        owner = Owner(position, kept)
        owner.read(log, data.draw(st.integers(0, len(log))))
        assert owner.delivered.keys().isdisjoint(
            {one for one in log if one < position or (kept is not None and kept.is_done(one))}
        )
        settled = owner.delivered.keys() & data.draw(st.sets(st.sampled_from(log)))
        for offset in settled:
            owner.tracker.settle(owner.delivered[offset])
        done |= settled
        before = {one for one in log if kept is not None and kept.is_done(one)}
        budget = data.draw(st.sampled_from([0, 12, 14, 16, 500]))
        position, kept = owner.stored(budget)
        told = {one for one in log if one < position or (kept is not None and kept.is_done(one))}
        assert told <= done
        if budget == 500:
            # What was known goes on.
            assert told >= before
            # And all that is new.
            assert told >= settled
    last = Owner(position, kept)
    last.read(log, len(log))
    assert done | last.delivered.keys() == set(log)
