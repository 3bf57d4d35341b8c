"""The source distribution and the wheel of this checkout, built once for a session."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.release.pythons import TOOLS, run

ROOT = Path(__file__).parents[2]


class Dist(NamedTuple):
    """What `make dist` makes, and what it printed."""

    sdist: Path
    wheel: Path
    said: str


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """Built by the script of `make dist`, which also checks it with twine."""
    out = tmp_path_factory.mktemp("release") / "dist"
    said = run(ROOT / "scripts/dist.sh", TOOLS, out, cwd=ROOT)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return Dist(sdist, wheel, said)
