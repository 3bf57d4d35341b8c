"""What an application says of a loop that something blocks."""

from __future__ import annotations

import sys

from reactive_kafka.runtime.loop import where_in


def test_of_a_deep_stack_both_ends_are_told() -> None:
    def deeper(calls: int) -> str:
        return deeper(calls - 1) if calls else where_in(sys._getframe())

    def begins() -> str:
        return deeper(20)

    found = {"__name__": "asyncio.events", "begins": begins}
    exec("def run(): return begins()", found)
    places = found["run"]().split(" > ")
    assert [place.split(" ")[-1] for place in places] == [
        "begins",
        *["deeper"] * 3,
        "...",
        *["deeper"] * 4,
    ]
