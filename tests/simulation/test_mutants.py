"""Each mutant's text stands in its file exactly once: a mutant that is not applied proves
nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mutants import (
    MUTANTS,
    PACKAGE,
    ROOT,
    Mutant,
    failed_test,
    first_failing,
    mutated,
    seen_before,
)

AT_LEAST = 160


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    source = (ROOT / PACKAGE / mutant.file).read_text()
    compile(mutated(mutant, source), mutant.file, "exec")


@pytest.mark.parametrize(
    "source",
    [
        "x = f(a, b) + 1\n",
        "x = f(\n    a,\n    b,\n) + 1\n",
        "x = f(  # Why.\n    a,\n    # The other.\n    b\n) + 1\n",
    ],
)
def test_a_mutant_is_found_however_its_text_is_laid_out(source: str) -> None:
    assert mutated(Mutant("it", "", "f(a, b) + 1", "f(b, a)", ""), source) == "x = f(b, a)\n"


@pytest.mark.parametrize(
    "source", ["x = f(a, c) + 1\n", "f(a, b) + 1\nf(a,  b) + 1\n", "f(ab) + 1"]
)
def test_a_mutant_whose_text_is_not_there_once_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match="times"):
        mutated(Mutant("it", "", "f(a, b) + 1", "f(b, a)", ""), source)


def test_there_are_enough_mutants_and_no_two_are_the_same() -> None:
    assert len(MUTANTS) >= AT_LEAST
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_what_has_seen_a_mutant_is_kept_of_those_that_exist() -> None:
    assert seen_before().keys() <= {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize(
    ("line", "test"),
    [
        ("FAILED tests/test_a.py::test_it - assert 1 == 2", "tests/test_a.py::test_it"),
        ("FAILED tests/test_a.py::test_it[a b]", "tests/test_a.py::test_it[a b]"),
        ("FAILED tests/test_a.py::test_it[a b] - KeyError", "tests/test_a.py::test_it[a b]"),
        ("ERROR tests/test_a.py - ImportError: no", "tests/test_a.py"),
    ],
)
def test_the_test_that_failed_is_named_with_its_parameters(line: str, test: str) -> None:
    assert failed_test(f"some dots\n{line}\n1 failed") == test
    captured = "ERROR    reactive_kafka:logs.py:191 orders: poison: orders-0 offset 1"
    assert failed_test(f"{captured}\n{line}\n1 failed") == test


def test_a_test_that_fails_once_and_not_alone_has_seen_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_times.py").write_text(
        "from pathlib import Path\n\n"
        "def test_of_a_busy_machine():\n"
        "    ran_before = Path('ran').exists()\n"
        "    Path('ran').touch()\n"
        "    assert ran_before\n"
    )
    assert first_failing(tmp_path, ["test_times.py"]) == ""
    (tmp_path / "test_rule.py").write_text("def test_of_a_rule():\n    assert False\n")
    (tmp_path / "ran").unlink()
    seen = first_failing(tmp_path, ["test_times.py", "test_rule.py"])
    assert seen == "test_rule.py::test_of_a_rule"


def test_a_test_that_does_not_exist_has_seen_nothing(tmp_path: Path) -> None:
    assert first_failing(tmp_path, ["test_times.py::test_of_a_busy_machine"]) == ""
