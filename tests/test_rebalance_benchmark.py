"""What ``make bench-rebalance`` makes of journals, and one small run of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.rebalances import front_page, page, scene
from benchmarks.rebalances.diary import (
    VALUE_BYTES,
    Change,
    ChangeKind,
    Diary,
    Entry,
    Handled,
    entries,
    has_handled,
    value,
)
from benchmarks.rebalances.judge import RestartVerdict, Sent, judged
from benchmarks.rebalances.plan import OURS, ROWS

ROOT = Path(__file__).parents[1]
STEP_S = 0.1
END_S = 6.0
"""The load of these journals: a record every 0.1 s in partitions 0 and 1, until 6 s."""


def ns(at_s: float) -> int:
    return round(at_s * 1e9)


def steps(start_s: float, until_s: float) -> Iterable[int]:
    """The numbers of the records that are sent in this time."""
    return range(round(start_s / STEP_S), round(until_s / STEP_S))


SENT = [Sent(ns(number * STEP_S), one, number) for number in steps(0, END_S) for one in (0, 1)]


def handled(partition: int, start_s: float, until_s: float, late_s: float = 0.02) -> list[Entry]:
    """All records that were sent in this time, each *late_s* after its send."""
    return [
        Handled(ns(number * STEP_S + late_s), partition, number)
        for number in steps(start_s, until_s)
    ]


def change(kind: ChangeKind, at_s: float, *partitions: int) -> Change:
    return Change(ns(at_s), kind, frozenset(partitions))


def smooth() -> dict[str, list[Entry]]:
    """Partition 0 stays with a. Partition 1 goes from b to a at 2 s, and to b's next life at 4 s."""
    return {
        "a0": [
            change("assigned", 0, 0),
            *handled(0, 0, END_S),
            change("assigned", 2.05, 1),
            *handled(1, 2, 4),
            change("revoked", 3.95, 1),
        ],
        "b0": [change("assigned", 0, 1), *handled(1, 0, 2), change("revoked", 1.95, 1)],
        "b1": [change("assigned", 4.05, 1), *handled(1, 4, END_S)],
    }


def verdict(lives: Mapping[str, Sequence[Entry]], sent: Sequence[Sent] = SENT) -> RestartVerdict:
    """Of two restarts, which begin at 1.9 s and 3.9 s."""
    return judged(sent, lives, [ns(1.9), ns(3.9)], ns(END_S))


def test_a_rolling_restart_in_which_nothing_goes_wrong() -> None:
    found = verdict(smooth())
    assert found.untouched_pause_s == pytest.approx(STEP_S)
    assert found.moved_pause_s == pytest.approx(STEP_S)
    assert found.age_p99_s == pytest.approx(0.02)
    assert found.load_gap_s == pytest.approx(STEP_S)
    assert (found.sent, found.moved) == (120, 1.0)
    assert (found.kept_revoked, found.duplicates, found.lost) == (0, 0, 0)


def test_a_pause_of_a_partition_that_stays_is_no_pause_of_one_that_moves() -> None:
    lives = smooth()
    # Handled in one go after 1.3 s.
    late = [Handled(ns(3.5), 0, number) for number in steps(2.2, 3.4)]
    lives["a0"] = [
        *(one for one in lives["a0"] if not (isinstance(one, Handled) and one.partition == 0)),
        *handled(0, 0, 2.2),
        *late,
        *handled(0, 3.4, END_S, late_s=0.15),
    ]
    found = verdict(lives)
    assert found.untouched_pause_s == pytest.approx(3.5 - 2.12)
    assert found.moved_pause_s == pytest.approx(STEP_S)
    assert found.age_p99_s == pytest.approx(1.3)


def test_a_pause_of_a_partition_that_moves_is_found() -> None:
    lives = smooth()
    lives["b1"] = [
        change("assigned", 4.9, 1),
        *(Handled(ns(5.0), 1, number) for number in steps(4, 5)),
        *handled(1, 5, END_S),
    ]
    found = verdict(lives)
    assert found.moved_pause_s == pytest.approx(5.0 - 3.92)
    assert found.untouched_pause_s == pytest.approx(STEP_S)


def test_a_partition_that_falls_silent_pauses_until_the_end() -> None:
    lives = smooth()
    lives["b1"] = [change("assigned", 4.05, 1), *handled(1, 4, 4.5)]
    found = verdict(lives)
    assert found.moved_pause_s == pytest.approx(END_S - 4.42)
    assert found.lost == 15


def test_a_pause_before_the_first_restart_does_not_count() -> None:
    lives = smooth()
    lives["a0"] = [
        *(Handled(ns(1.5), 0, number) for number in steps(0, 1.5)),
        *handled(0, 1.5, END_S),
        *(one for one in lives["a0"] if not (isinstance(one, Handled) and one.partition == 0)),
    ]
    found = verdict(lives)
    assert found.untouched_pause_s == pytest.approx(STEP_S)
    assert found.age_p99_s == pytest.approx(0.02)


def test_a_partition_that_another_member_had_without_a_record_has_moved() -> None:
    lives = smooth()
    lives["b1"].insert(0, change("assigned", 4.0, 0, 1))
    lives["b1"].append(change("revoked", 4.2, 0))
    found = verdict(lives)
    # Partition 1 in both restarts, partition 0 in the second one.
    assert found.moved == 1.5


def test_what_is_taken_and_given_back_is_counted_each_time() -> None:
    lives = smooth()
    lives["a0"] += [
        change("revoked", 2.0, 0),
        change("assigned", 2.05, 0),
        change("lost", 4.0, 0),
        change("assigned", 4.05, 0),
    ]
    assert verdict(lives).kept_revoked == 2


def test_what_is_taken_and_goes_elsewhere_does_not_stay() -> None:
    lives = smooth()
    lives["a0"] += [change("revoked", 2.0, 0), change("assigned", 2.2, 0)]
    lives["b1"].insert(0, change("assigned", 2.1, 0))
    assert verdict(lives).kept_revoked == 0


def test_what_was_taken_while_the_group_started_does_not_count() -> None:
    lives = smooth()
    lives["a0"] += [change("revoked", 0.5, 0), change("assigned", 0.6, 0)]
    assert verdict(lives).kept_revoked == 0


def test_a_record_that_is_handled_again_is_a_duplicate() -> None:
    lives = smooth()
    # Two in a restart, one before the first.
    lives["b1"] += [Handled(ns(4.1), 1, 39), Handled(ns(4.1), 1, 38)]
    lives["a0"].append(Handled(ns(1.0), 0, 5))
    assert verdict(lives).duplicates == 2


def test_a_record_that_nobody_handles_is_lost() -> None:
    lives = smooth()
    lives["b1"] = [one for one in lives["b1"] if one != Handled(ns(4.52), 1, 45)]
    assert verdict(lives).lost == 1


def test_a_load_that_stops_for_a_while_shows() -> None:
    pause = set(steps(2.5, 3.5))
    sent = [one for one in SENT if one.offset not in pause]
    lives = {
        life: [one for one in written if not (isinstance(one, Handled) and one.offset in pause)]
        for life, written in smooth().items()
    }
    found = verdict(lives, sent)
    assert found.load_gap_s == pytest.approx(1.1)
    assert found.untouched_pause_s == pytest.approx(1.1)
    assert found.lost == 0


def test_without_a_partition_that_stays_there_is_no_such_pause() -> None:
    lives = smooth()
    for life in lives.values():
        life[:] = [
            one
            for one in life
            if (isinstance(one, Handled) and one.partition == 1)
            or (isinstance(one, Change) and one.partitions == {1})
        ]
    found = verdict(lives, [one for one in SENT if one.partition == 1])
    assert found.untouched_pause_s is None
    assert found.moved_pause_s == pytest.approx(STEP_S)


def test_a_record_that_was_not_sent_is_an_error_of_the_harness() -> None:
    lives = smooth()
    lives["a0"].append(Handled(ns(5), 0, 60))
    with pytest.raises(ValueError, match="names record 60 of partition 0, which was never sent"):
        verdict(lives)


# -- journals


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a0.journal"
    diary = Diary(str(path))
    diary.changed("assigned", [7, 0, 59])
    assert not has_handled(path.read_bytes())
    diary.handled(value(1, 59, 123_456_789))
    diary.changed("revoked", [59])
    diary.changed("revoked", [])
    diary.changed("lost", [0, 7])
    assert has_handled(path.read_bytes())
    # Killed in the middle of a line.
    with path.open("ab") as journal:
        journal.write(b"handled 12")
    given, record, *taken = entries(path.read_bytes())
    assert given == Change(given.at_ns, "assigned", frozenset({0, 7, 59}))
    assert record == Handled(record.at_ns, 59, 123_456_789)
    assert taken == [
        Change(taken[0].at_ns, "revoked", frozenset({59})),
        Change(taken[1].at_ns, "lost", frozenset({0, 7})),
    ]
    times = [given.at_ns, record.at_ns, *(one.at_ns for one in taken)]
    assert times == sorted(times)


@pytest.mark.parametrize("line", [b"", b"handled 1 2", b"paused 1 2", b"revoked 1 a", b"lost 1"])
def test_what_is_no_journal_is_not_taken_for_one(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 2 of a journal: .* is no line of it"):
        entries(b"lost 1 2\n" + line + b"\n")


def test_a_value_begins_with_its_time_and_has_the_size_that_the_page_names() -> None:
    assert value(1_764_416_000_123_456_789, 3, 17).startswith(b"1764416000123456789 003 000000017")
    assert len(value(1, 999, 999_999_999)) == VALUE_BYTES


# -- the page


def test_the_page_has_every_contender_and_says_what_was_not_measured() -> None:
    row = RestartVerdict(
        sent=54_321,
        kept_revoked=1_234,
        moved=10.5,
        untouched_pause_s=None,
        moved_pause_s=1.234,
        age_p99_s=0.456,
        duplicates=7,
        lost=3,
        load_gap_s=0.11,
    )
    text = page.page(
        {OURS: row}, {"Java, classic": "no javac"}, size=scene.Size(), circumstances=["a machine"]
    )
    assert f"| {OURS} | 1,234 | 10.5 | – | 1.23 | 0.46 | 7 | **3** | 54,321 | 0.11 |" in text
    assert "| Java, classic | failed |" in text
    assert "- Java, classic: no javac" in text
    assert "| FastStream, sticky | not measured |" in text
    for one in ROWS:
        assert f"| {one.name} | " in text
        assert f"- {one.name}: {one.settings}." in text
    tables = {text_line.count("|") for text_line in text.splitlines() if text_line.startswith("|")}
    assert len(tables) == 1


def test_the_short_table_has_what_the_page_says_of_each_contender_that_was_measured() -> None:
    measured = RestartVerdict(
        sent=48_000,
        kept_revoked=7,
        moved=20.0,
        untouched_pause_s=None,
        moved_pause_s=0.5,
        age_p99_s=0.125,
        duplicates=3,
        lost=1,
        load_gap_s=0.1,
    )
    text = page.page(
        {OURS: measured}, {"FastStream, sticky": "it ended"}, size=scene.Size(), circumstances=[]
    )
    short = front_page.table(text)
    assert short[2:] == [f"| **{OURS}** | 7 | – | 0.50 s | 0.12 s | 3 | **1** |"]
    marked = f"before\n<!-- {front_page.MARK} -->\nold\n<!-- /{front_page.MARK} -->\nafter\n"
    assert front_page.with_table(marked, text).splitlines()[2:-2] == short


@pytest.mark.parametrize("shown", front_page.PAGES, ids=lambda path: path.name)
def test_the_readme_and_the_page_about_performance_show_what_was_measured(shown: Path) -> None:
    text = shown.read_text()
    assert front_page.with_table(text, front_page.RESULTS.read_text()) == text


def test_what_a_row_runs_is_there() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        if row.family == "java":
            assert row.run in ("classic", "consumer")
            continue
        place, _, function = row.run.partition(":")
        source = (ROOT / "benchmarks" / place.replace(".", "/")).with_suffix(".py").read_text()
        defined = {
            node.name
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert function in defined, row.run


@pytest.mark.kafka
async def test_a_small_rolling_restart_of_ours_loses_nothing(kafka: str) -> None:
    (row,) = [one for one in ROWS if one.name == OURS]
    size = scene.Size(members=3, partitions=12, seconds=1)
    found = await scene.played(row, size, kafka)
    assert found.lost == 0
    assert found.sent >= size.per_second * size.seconds * (size.members + 1)
    assert found.moved > 0
    assert found.moved_pause_s is not None
    assert found.age_p99_s is not None
    assert 0 < found.age_p99_s < 60
    assert page.line(row, found).count("|") == len(page.COLUMNS) + 2
