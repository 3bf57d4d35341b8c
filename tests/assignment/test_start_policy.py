"""Where reading begins: the group's position, else what the policy says; loud when records are
passed over.
"""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.assignment.start_policy import NoPositionError, Start, start_position

# Its first record, and its end.
LOG = (10, 50)


@pytest.mark.parametrize("policy", ["latest", "earliest", "none"])
@pytest.mark.parametrize("committed", [10, 30, 50])
def test_a_committed_position_that_is_in_the_log_stands(committed: int, policy: Any) -> None:
    assert start_position(committed, *LOG, policy) == Start(committed)
    assert start_position(committed, *LOG, policy, is_new=True) == Start(committed)


@pytest.mark.parametrize(
    ("policy", "committed", "start"),
    [
        ("earliest", None, Start(10, "earliest")),
        ("earliest", 4, Start(10, "earliest", lost=6, commit=True)),
        ("earliest", 60, Start(10, "earliest", commit=True)),
        ("latest", None, Start(50, "latest", commit=True)),
        ("latest", 4, Start(50, "latest", lost=46, commit=True)),
        ("latest", 60, Start(50, "latest", commit=True)),
    ],
)
def test_the_policy_chooses_where_the_group_has_nothing_in_the_log(
    policy: Any, committed: int | None, start: Start
) -> None:
    assert start_position(committed, *LOG, policy) == start


def test_a_partition_that_appears_later_is_read_from_its_beginning() -> None:
    assert start_position(None, *LOG, "latest", is_new=True) == Start(10, "earliest", commit=True)


@pytest.mark.parametrize("committed", [None, 9, 51])
@pytest.mark.parametrize("is_new", [False, True])
def test_without_a_policy_nobody_chooses(committed: int | None, is_new: bool) -> None:
    with pytest.raises(NoPositionError):
        start_position(committed, *LOG, "none", is_new=is_new)
