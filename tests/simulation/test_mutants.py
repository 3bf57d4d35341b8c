"""Each mutant's text stands in its file exactly once: a mutant that is not applied proves
nothing.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, PACKAGE, ROOT, Mutant, mutated, seen_before

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
