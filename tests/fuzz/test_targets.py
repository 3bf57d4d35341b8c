"""Each target is fed with some inputs; ``make fuzz MINUTES=`` feeds them for longer. Budget and
runner work.
"""

from __future__ import annotations

import resource
import time
from contextlib import nullcontext
from random import Random

import pytest

from tests.fuzz import __main__ as runner
from tests.fuzz import budget
from tests.fuzz.budget import OverBudget, play
from tests.fuzz.targets import TARGETS

INPUTS = {
    "configuration": 600,
    "command-line": 100,
    "http": 150,
    "rows": 500,
    "formats": 1000,
    "metadata": 1000,
    "schemas": 300,
    "registry-answers": 200,
}
OTHERS = 2000
"""Inputs of those that take less than a millisecond."""


@pytest.mark.parametrize("name", TARGETS)
def test_only_what_is_documented_comes_of_any_input(name: str) -> None:
    """Rows F13, J3 and J5 of the faults."""
    with TARGETS[name]() as target:
        for seed in range(INPUTS.get(name, OTHERS)):
            play(name, target, seed)


def test_a_seed_is_the_same_input_again() -> None:
    drawn = list[bytes]()
    for seed in (1, 1, 2):
        play("it", lambda draw: drawn.append(draw.randbytes(9)), seed)
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_takes_too_long_or_too_much_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LONGEST_S", 0.05)

    def busy(_: Random) -> None:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass

    with pytest.raises(OverBudget, match="processor time"):
        play("busy", busy, 1)
    monkeypatch.setattr(budget, "HANGS_S", 0.3)
    with pytest.raises(OverBudget, match=r"no end within 0.3 s, at .*test_targets"):
        play("hangs", lambda _: time.sleep(60), 1)
    monkeypatch.setattr(budget, "LONGEST_S", 60.0)
    monkeypatch.setattr(budget, "HANGS_S", 60.0)
    monkeypatch.setattr(budget, "MOST_KIB", 1024)
    # More than there ever was.
    size = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) + (64 << 20)
    with pytest.raises(OverBudget, match="of memory"):
        play("large", lambda _: [b"x" * size].clear(), 1)


def test_the_runner_tells_each_finding_once_in_a_while_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def odd(draw: Random) -> None:
        if draw.random() < 0.5:
            raise KeyError("a\x1b[2Jb")

    monkeypatch.setattr(runner, "TARGETS", {"odd": lambda: nullcontext(odd)})
    assert runner.main(["--minutes", "0.005", "--first", "1"]) == 1
    said = capsys.readouterr().out
    assert said.count("again: python -m tests.fuzz --target odd --seed ") == runner.MOST_SHOWN
    assert "\x1b" not in said
    assert "RED" in said
    seed = said.partition("--seed ")[2].split()[0]
    with pytest.raises(KeyError):
        runner.main(["--target", "odd", "--seed", seed])
