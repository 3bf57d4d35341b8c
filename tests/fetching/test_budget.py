"""Back-pressure: the limit is kept, no partition takes what another needs, and those without room
are paused.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.fetching.budget import (
    LONGEST_LOOK_S,
    LOOK_AT,
    LOOK_S,
    PIECE,
    READ_AHEAD,
    ROUND_S,
    TURN_S,
    WAITING,
    WAITING_S,
    Pace,
    Room,
    Shares,
    Turn,
    budgets,
    look_s,
    read_ahead,
    take_turns,
    turn,
    window,
)
from reactive_kafka.fetching.fetch_pauses import PAUSE_AFTER_S, FetchPauses
from tests.partitions.reading import lone_partition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def held(*records: int) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", number): count for number, count in enumerate(records)}


def test_without_partitions_nothing_is_asked_for() -> None:
    assert budgets({}, 100) == {}


def test_a_partition_alone_may_fill_the_whole_channel() -> None:
    assert budgets(held(0), 100) == {A: 100}
    assert budgets(held(99), 100) == {A: 1}
    assert budgets(held(100), 100) == {}


def test_a_busy_partition_may_have_more_than_its_own_half() -> None:
    # A quarter is its own, half of what is left of the other half is offered.
    assert budgets(held(50, 0), 100)[A] == 12
    assert budgets(held(0, 0), 100) == {A: 50, B: 50}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=6), st.integers(1, 300))
def test_what_is_read_in_search_of_other_keys_keeps_a_limit_of_its_own(
    counts: list[int], limit: int
) -> None:
    unsettled = held(*counts)
    records = read_ahead(unsettled, limit)
    assert 0 <= records <= limit
    assert not records or sum(counts) + records * len(counts) <= READ_AHEAD * limit


def test_with_all_of_it_read_no_other_keys_are_looked_for() -> None:
    assert read_ahead(held(1000), 100) == 0
    assert read_ahead(held(100, 0), 100) == 100


def test_a_stuck_partition_leaves_every_other_its_own_part() -> None:
    assert budgets(held(75, 0), 100) == {B: 25}
    assert budgets(held(66, 0, 0), 100) == {B: 16, C: 16}


def test_with_more_partitions_than_room_each_may_still_have_one_record() -> None:
    assert budgets(held(0, 0, 0, 0), 2) == dict.fromkeys(held(0, 0, 0, 0), 1)
    assert budgets(held(1, 0, 1, 0), 2) == {B: 1, TopicPartition("orders", 3): 1}


@given(records=st.lists(st.integers(0, 60), min_size=2, max_size=8), limit=st.integers(1, 100))
def test_who_holds_nothing_may_always_have_one_record(records: list[int], limit: int) -> None:
    """Whatever the others hold: more than the limit, too, when partitions came to those that were
    there.
    """
    unsettled = held(*records)
    allowed = budgets(unsettled, limit)
    assert all(more > 0 for more in allowed.values())
    assert all(partition in allowed for partition, count in unsettled.items() if not count)


@given(
    stuck=st.integers(0, 3),
    limit=st.integers(2, 60),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=60),
)
def test_whatever_a_stuck_partition_was_given_the_others_go_on(
    stuck: int, limit: int, steps: list[tuple[int, int]]
) -> None:
    """One partition takes whatever it may and settles nothing; each of the others settles all it
    has at its turn.
    """
    names = list(held(0, 0, 0, 0))
    holds = dict.fromkeys(names, 0)
    for number, wish in steps:
        partition = names[number]
        if number != stuck:
            holds[partition] = 0
        allowed = budgets(holds, limit).get(partition, 0)
        assert number == stuck or allowed > 0, f"{partition} stands still"
        holds[partition] += min(wish, allowed)
        assert sum(holds.values()) <= max(limit, len(names))


# -- partitions that take turns


class Game:
    """Partitions that take turns, each with an endless backlog; polls go round among them as the
    seam's do.

    Args:
        stuck: Those that settle nothing, ever.
        most_waiting: There are several workers; None: there is one.
        share_waiting: So much of what a partition holds waits for a worker.
    """

    def __init__(
        self,
        partitions: int,
        limit: int,
        stuck: set[int],
        piece: int = PIECE,
        spread: int = 1,
        most_waiting: int | None = None,
        share_waiting: float = 0.0,
    ) -> None:
        self.limit, self.stuck, self.piece, self.spread = limit, stuck, piece, spread
        self.most_waiting, self.share_waiting = most_waiting, share_waiting
        self.queue = [TopicPartition("orders", number) for number in range(partitions)]
        self.holds: dict[TopicPartition, int] = {}
        self.polls_without: dict[TopicPartition, int] = dict.fromkeys(self.queue, 0)

    def poll(self) -> None:
        how: dict[str, Any] = {"piece": self.piece, "spread": self.spread}
        if self.most_waiting is not None:
            waiting = {
                partition: int(count * self.share_waiting)
                for partition, count in self.holds.items()
            }
            how = {"piece": self.piece, "waiting": waiting, "most_waiting": self.most_waiting}
        this = turn(self.holds, len(self.queue), self.limit, **how)
        left, served = this.most, []
        for partition in self.queue:
            self.polls_without[partition] += 1
            allowed = this.held.get(partition, 0) if partition in self.holds else this.each
            if records := min(allowed, left):
                self.holds[partition] = self.holds.get(partition, 0) + records
                self.polls_without[partition] = 0
                left -= records
                served.append(partition)
        self.queue = [partition for partition in self.queue if partition not in served] + served

    def settle(self) -> None:
        self.holds = {
            partition: count
            for partition, count in self.holds.items()
            if partition.partition in self.stuck
        }


@settings(deadline=None, max_examples=60)
@given(
    partitions=st.integers(1, 1000),
    limit=st.integers(1, 1000) | st.integers(1, 1_000_000),
    piece=st.integers(1, PIECE),
    spread=st.integers(1, 300),
    most_waiting=st.none() | st.integers(WAITING, 1_000_000),
    share_waiting=st.floats(0, 1),
    data=st.data(),
)
def test_whoever_is_stuck_every_other_has_its_turn_and_the_limit_is_kept(
    partitions: int,
    limit: int,
    piece: int,
    spread: int,
    most_waiting: int | None,
    share_waiting: float,
    data: st.DataObject,
) -> None:
    """With two records a partition any of them may be stuck; with less, fewer than the half that is
    kept for ones.
    """
    most_stuck = partitions - 1 if limit >= 2 * partitions else min(partitions, limit // 2) - 1
    stuck = data.draw(st.sets(st.integers(0, partitions - 1), max_size=max(0, most_stuck)))
    game, polls_for_stuck = (
        Game(partitions, limit, stuck, piece, spread, most_waiting, share_waiting),
        0,
    )
    for _ in range(12):
        game.poll()
        assert sum(game.holds.values()) <= limit
        is_for_others = any(partition.partition not in stuck for partition in game.holds)
        polls_for_stuck = 0 if is_for_others else polls_for_stuck + 1
        assert polls_for_stuck <= len(stuck), "all others stand still"
        game.settle()


@pytest.mark.parametrize("limit", [20, 200, 400, 4000])
@pytest.mark.parametrize("stuck", [0, 1, 9])
@pytest.mark.parametrize("most_waiting", [None, WAITING, 4000])
@pytest.mark.parametrize("share_waiting", [0.0, 1.0])
def test_a_partition_has_its_turn_within_a_bounded_number_of_polls(
    limit: int, stuck: int, most_waiting: int | None, share_waiting: float
) -> None:
    game = Game(
        200, limit, set(range(stuck)), most_waiting=most_waiting, share_waiting=share_waiting
    )
    for _ in range(300):
        game.poll()
        game.settle()
        assert (
            max(polls for tp, polls in game.polls_without.items() if tp.partition >= stuck) <= 200
        )


def test_a_window_that_is_far_below_the_number_of_partitions_is_kept_exactly() -> None:
    game = Game(1000, 10, set())
    for _ in range(300):
        game.poll()
        assert 1 <= sum(game.holds.values()) <= 10
        game.settle()


def test_turns_bring_pieces_and_not_crumbs() -> None:
    assert turn({}, 1000, 2000) == Turn(500, {}, 1000)
    assert turn({}, 100, 1000).each == 450
    assert turn({}, 1000, 20_000).each == PIECE


def test_workers_that_take_a_partition_each_all_get_one() -> None:
    this = turn({}, 1000, 2000, spread=50)
    assert this.most // this.each >= 50


def test_of_several_workers_fast_ones_get_no_crumbs_and_slow_ones_a_share_of_all_partitions() -> (
    None
):
    assert turn({}, 100, 1000, waiting={}, most_waiting=1000).each == 600
    assert turn({}, 100, 1000, waiting={}, most_waiting=WAITING).each == WAITING
    assert turn({}, 100, 1000, spread=100, waiting={}, most_waiting=1000).each == 10


def test_where_several_workers_are_who_has_half_of_an_equal_share_waiting_gets_no_more() -> None:
    # An equal share is 1, and of what may be shared 950 / 40.
    some = held(100, 100, 100, 100, *[1] * 36)
    this = turn(some, 50, 1000, piece=1, waiting=some, most_waiting=1000)
    assert set(this.held.values()) == {23}
    assert not {tp.partition for tp in this.held} & set(range(4))
    some = held(12, 13, 23, 24, *[1] * 36)
    assert turn(some, 50, 1000, piece=1, waiting=some, most_waiting=1000).held.keys() & {
        A,
        B,
        C,
    } == {A}
    assert turn(held(1, 4, 5), 50, 1000, waiting=held(0, 4, 5), most_waiting=WAITING).held == {
        A: WAITING,
        B: 4,
    }


@given(partitions=st.integers(2, 1000), busy=st.integers(1, 1000), piece=st.integers(1, PIECE))
def test_the_window_has_a_piece_for_each_busy_worker_if_it_has_two_records_for_each(
    partitions: int, busy: int, piece: int
) -> None:
    # All that came is with workers.
    taken = held(*[1] * min(partitions, busy))
    this = turn(
        taken,
        partitions,
        2000,
        piece=piece,
        spread=busy,
        waiting=dict.fromkeys(taken, 0),
        most_waiting=2000,
    )
    assert max(this.each, *this.held.values()) * len(taken) <= 2000


@pytest.mark.parametrize("partitions", [5, 100, 333, 499, 500, 999, 1000])
def test_equal_shares_leave_nothing_that_would_be_asked_for_in_vain(partitions: int) -> None:
    room = window(1000, partitions, is_set=False)
    some = held(*[1] * partitions)
    for _ in range(9):
        this = turn(
            some,
            partitions,
            room,
            piece=1,
            spread=5,
            waiting=some,
            most_waiting=room,
            is_urgent=False,
        )
        some = {partition: count + this.held.get(partition, 0) for partition, count in some.items()}
    assert room - sum(some.values()) < room // 8


def test_fast_workers_get_pieces_where_equal_shares_would_be_crumbs() -> None:
    some = held(*[1] * 500)
    this = turn(some, 1000, 2000, piece=100, waiting=some, most_waiting=2000)
    assert set(this.held.values()) == {99}
    assert this.each == 100


def test_partitions_of_which_nothing_waits_have_no_share() -> None:
    """What they hold is retried, say: it may be long before they take anything."""
    holds = held(600, *[1] * 19)
    this = turn(holds, 20, 1020, piece=1, waiting=held(10, *[0] * 19), most_waiting=1020)
    assert this.held[A] == (2 * 401 - 600 + 1) // 3


def test_what_a_partition_holds_that_waits_for_no_worker_keeps_back_none_of_its_records() -> None:
    """It is retried, or not acked, or not stored: more records may be what that waits for."""
    holds, waiting = {A: 1}, {A: 0}
    while more := turn(holds, 100, 1000, waiting=waiting, most_waiting=WAITING).held.get(A, 0):
        assert more <= WAITING
        holds[A] += more
    assert 595 <= holds[A] <= 601


def test_nothing_is_asked_for_before_an_eighth_can_come_unless_workers_run_dry() -> None:
    held = {A: 900}
    assert turn(held, 100, 1000, is_urgent=False) == Turn(0, {}, 0)
    assert turn(held, 100, 1000, is_urgent=True).most == 99
    assert turn({A: 700}, 100, 1000, is_urgent=False).most == 201


def test_a_lone_busy_partition_of_many_gets_two_thirds_of_what_is_shared() -> None:
    holds = {A: PIECE}
    while more := turn(holds, 100, 1000).held.get(A, 0):
        holds[A] += more
    assert 595 <= holds[A] <= 601


def test_when_stuck_ones_have_nearly_all_that_is_shared_the_others_go_on_with_a_record_each() -> (
    None
):
    stuck = {TopicPartition("orders", number): 20 for number in range(50)}
    this = turn(stuck, 500, 1450)
    assert this == Turn(1, {}, 450)


@given(
    partitions=st.integers(2, 1000),
    limit=st.integers(1, 3000),
    held_by=st.dictionaries(st.integers(0, 999), st.integers(1, 3000), max_size=50),
    is_urgent=st.booleans(),
    most_waiting=st.none() | st.integers(WAITING, 3000),
    share_waiting=st.floats(0, 1),
)
def test_what_is_asked_for_never_passes_the_limit_though_partitions_came_to_those_that_were_there(
    partitions: int,
    limit: int,
    held_by: dict[int, int],
    is_urgent: bool,
    most_waiting: int | None,
    share_waiting: float,
) -> None:
    """Whoever holds nothing may have one record all the same, where each has a record kept for
    it.
    """
    unsettled = {
        TopicPartition("orders", number): count
        for number, count in held_by.items()
        if number < partitions
    }
    waiting = {partition: int(count * share_waiting) for partition, count in unsettled.items()}
    how: dict[str, Any] = (
        {} if most_waiting is None else {"waiting": waiting, "most_waiting": most_waiting}
    )
    this = turn(unsettled, partitions, limit, is_urgent=is_urgent, **how)
    total = sum(unsettled.values())
    is_over = total + (partitions - len(unsettled)) > limit
    assert this.most >= 0
    assert total + this.most <= max(limit, total) or (
        is_over and this.each == 1 and limit >= 2 * partitions
    )
    assert all(0 < records <= this.most or not this.most for records in this.held.values())
    if is_urgent and limit >= 2 * partitions and len(unsettled) < partitions:
        assert this.most
        assert this.each


def test_few_partitions_and_wide_windows_take_no_turns() -> None:
    assert not take_turns(4, 1000)
    assert not take_turns(7, 1000)
    assert take_turns(8, 1000)
    assert not take_turns(1000, 200_000)
    assert take_turns(100, 1000)
    assert take_turns(1000, 1000)
    assert take_turns(6, 2)


def test_more_workers_than_partitions_need_turns_only_of_many() -> None:
    assert take_turns(8, 1000, concurrency=8)
    assert not take_turns(8, 1000, concurrency=9)
    assert not take_turns(16, 2000, concurrency=1000)
    assert take_turns(17, 2000, concurrency=1000)


def test_for_batches_two_partitions_take_turns_unless_their_parts_hold_one_or_one_needs_all_of_the_window() -> (
    None
):
    assert not take_turns(1, 1000, batch=500)
    assert take_turns(2, 1000, batch=500)
    assert take_turns(2, 1999, batch=500)
    # The part of each holds one.
    assert not take_turns(2, 2000, batch=500)
    assert take_turns(2, 1000, batch=938)
    assert not take_turns(2, 1000, batch=939)


def test_a_window_that_somebody_has_set_is_that_window() -> None:
    assert window(10, 1000, is_set=True) == 10
    assert window(1000, 1000, is_set=True) == 1000


def test_the_default_window_has_a_record_more_for_each_partition_that_takes_turns() -> None:
    assert window(1000, 100, is_set=False) == 1100
    assert window(1000, 1000, is_set=False) == 2000
    assert window(1000, 3000, is_set=False) == 6000


def test_a_turn_is_a_millisecond_of_work() -> None:
    pace = Pace()
    # Nothing is known yet.
    assert pace.look(0, 100.0, 100) == 1
    assert pace.look(500, 101.0, 100) == 1
    assert pace.look(500 + 20_000, 102.0, 100) == 20
    # Too short to tell.
    assert pace.look(30_000, 102.0 + TURN_S / 2, 100) == 20
    assert pace.look(10_000_000, 103.0, 100) == PIECE
    # Nothing came meanwhile.
    assert pace.look(10_000_000, 200.0, 100) == PIECE
    assert pace.look(10_000_100, 201.0, 100) == 1


@given(partitions=st.integers(1, 1000), a_second=st.integers(1, 100_000))
def test_a_round_of_few_partitions_is_a_tenth_of_a_second_and_none_is_longer_than_a_second(
    partitions: int, a_second: int
) -> None:
    pace = Pace()
    pace.look(1, 0.0, partitions)
    piece = pace.look(1 + a_second, 1.0, partitions)
    if 1 < piece < PIECE:
        round_s = partitions * piece / a_second
        assert round_s == pytest.approx(max(ROUND_S, TURN_S * partitions), rel=0.5)


def test_the_only_worker_in_a_partition_needs_its_work_of_a_quarter_of_a_second_there() -> None:
    pace = Pace()
    assert pace.most_waiting(100) == WAITING
    pace.look(0, 50.0, 100)
    # 10 ms, 100 workers, 1 ms each.
    pace.look(1_000, 50.01, 100)
    assert pace.most_waiting(100) == 1_000 * WAITING_S
    for number in range(1, 31):
        # 10 each 10 ms: what was before is forgotten.
        pace.look(1_000 + 10 * number, 50.01 + number / 100, 100)
    assert pace.most_waiting(10) == 100 * WAITING_S
    pace.look(1_300, 60.0, 100)
    pace.look(1_300, 60.3, 100)
    pace.look(1_300, 60.5, 100)
    assert pace.most_waiting(1) == WAITING
    pace.look(1_000_000, 61.0, 100)
    pace.look(2_000_000, 62.0, 100)
    assert pace.most_waiting(0) > PIECE


def test_a_turn_does_not_change_with_every_poll() -> None:
    pace = Pace()
    done, turns = 1, list[int]()
    for at_s, a_second in enumerate((0, 100_000, 120_000, 80_000, 126_000, 100_000, 90_000)):
        done += a_second
        turns.append(pace.look(done, float(at_s), 100))
    assert turns == [1, 100, 100, 100, 126, 126, 90]


partitions_given = st.dictionaries(st.integers(0, 9), st.integers(1, 99), max_size=5)


@given(
    st.lists(st.sets(st.integers(0, 9), max_size=8), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(1, 3), partitions_given, st.sets(st.integers(0, 9))
        )
    ),
)
def test_shares_are_those_of_a_poll_before_which_nobody_changed_any(
    read: list[set[int]], polls: list[tuple[int, int, dict[int, int], set[int]]]
) -> None:
    names = [
        tuple(TopicPartition("orders", number) for number in sorted(numbers)) for numbers in read
    ]
    shares = Shares()
    for which, each, given_by, without in polls:
        now = names[which % len(names)]
        shares.reset(now, each)
        assert shares == dict.fromkeys(now, each)
        own = {TopicPartition("orders", number): records for number, records in given_by.items()}
        gone = {TopicPartition("orders", number) for number in without}
        changed = [name for name in now if name in own or name in gone]
        for name in changed:
            if name in gone:
                del shares[name]
            else:
                shares[name] = own[name]
        shares.changed(changed)


# -- pauses


@given(st.integers(0, 1_000_000))
def test_a_look_comes_later_where_it_takes_longer_and_never_very_late(holding: int) -> None:
    assert LOOK_S <= look_s(holding) <= LONGEST_LOOK_S
    assert look_s(holding) >= look_s(max(0, holding - 1))
    assert look_s(holding) == LOOK_S or holding > LOOK_AT
    # A look takes 2 us for each.
    assert holding * 2e-6 / look_s(holding) <= 0.021 or look_s(holding) == LONGEST_LOOK_S


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_room_that_is_taken_is_looked_at_when_workers_have_little_to_do_or_it_was_long_ago(
    brought: int, ready: int, now: int
) -> None:
    room = Room()
    assert not room.is_early(ready, now)
    room.taken(5, 5.0, enough=5)
    assert room.is_early(ready, now) is (ready > 5 and now < 5)
    assert room.is_taken(brought) is (brought >= 5)
    room.look_again()
    assert not room.is_early(ready, now)


def test_a_partition_without_room_is_paused_only_after_a_while() -> None:
    pauses, b = FetchPauses(), lone_partition(B)
    assert pauses.update([b], [A], [], 0.0) == ([], [])
    assert pauses.update([b], [A], [], PAUSE_AFTER_S / 2) == ([], [])
    assert pauses.update([b], [A], [], PAUSE_AFTER_S) == ([B], [])
    assert b.fetch.is_paused
    assert pauses.update([b], [A], [], PAUSE_AFTER_S + 1) == ([], [])


def test_a_partition_that_had_room_in_between_waits_again_before_it_is_paused() -> None:
    pauses, a = FetchPauses(), lone_partition(A)
    pauses.update([a], [], [], 0.0)
    pauses.update([], [A], [], 0.9)
    assert pauses.update([a], [], [], 1.1) == ([], [])
    assert pauses.update([a], [], [], 2.1) == ([A], [])


def test_a_stopped_partition_is_paused_at_once() -> None:
    a = lone_partition(A)
    assert FetchPauses().update([a], [B], [A], 0.0) == ([A], [])


def test_a_paused_partition_is_resumed_as_soon_as_there_is_room() -> None:
    pauses, a = FetchPauses(), lone_partition(A)
    pauses.update([a], [], [A], 0.0)
    assert pauses.update([], [A], [], 0.1) == ([], [A])
    assert not a.fetch.is_paused


def test_a_partition_that_starts_anew_in_the_same_assignment_is_still_paused_and_is_resumed() -> (
    None
):
    pauses, a, b = FetchPauses(), lone_partition(A), lone_partition(B)
    pauses.update([a, b], [], [A, B], 0.0)
    pauses.update([b], [], [], 1.0)
    assert pauses.update([b], [A], [], 2.0) == ([], [A])


def test_what_an_assignment_has_opened_is_paused_again_at_the_client() -> None:
    pauses, a = FetchPauses(), lone_partition(A)
    pauses.update([a], [], [A], 0.0)
    # As the table does it when a partition is assigned: the client has forgotten its pauses.
    a.fetch.begin_assignment()
    assert pauses.update([a], [], [A], 0.5) == ([A], [])
    assert pauses.update([], [A], [], 0.6) == ([], [A])


def test_a_partition_that_has_gone_while_it_was_paused_is_forgotten() -> None:
    pauses, a = FetchPauses(), lone_partition(A)
    pauses.update([a], [], [A], 0.0)
    a.go("revoke")
    a.go("lose")
    assert pauses.update([], [B], [], 1.0) == ([], [])
    # Another member has had it, and it is a new one now.
    assert pauses.update([], [A], [], 2.0) == ([], [])
