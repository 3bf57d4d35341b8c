"""Each mutant's text stands in its file exactly once: a mutant that is not applied proves nothing."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, PACKAGE, ROOT, Mutant

AT_LEAST = 160


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    source = (ROOT / PACKAGE / mutant.file).read_text()
    assert source.count(mutant.old) == 1
    compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_there_are_enough_mutants_and_no_two_are_the_same() -> None:
    assert len(MUTANTS) >= AT_LEAST
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
