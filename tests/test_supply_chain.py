"""What is installed for development and tests is what was locked: every version, and every file by
its hash.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = (
    "constraints.txt",
    "scripts/demo.txt",
    "scripts/tools.txt",
    "scripts/docs.txt",
    "deploy/requirements.txt",
    "benchmarks/requirements.txt",
    *(
        f"benchmarks/peers/requirements/{peer}.txt"
        for peer in ("arroyo", "faststream", "faust", "quix")
    ),
)


def locked(lock: str) -> dict[str, list[str]]:
    """Package -> the SHA-256 of its files."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / lock).read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            pinned = re.match(r"([a-z0-9-]+)==[\w.]+( ; [^-]+)?\s", line)
            assert pinned is not None, f"{lock}: not one version: {line[:60]}"
            found[pinned[1]] = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line)
    return found


def names(requirements: list[str]) -> set[str]:
    """The packages that some requirements name, in the lock's spelling; not this one itself."""
    found = {re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for one in requirements}  # type: ignore[index]
    return found - {"reactive-kafka"}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_hashes(lock: str) -> None:
    """Row S14 of the faults."""
    assert [package for package, hashes in locked(lock).items() if not hashes] == []


def test_all_that_the_project_names_is_locked() -> None:
    project, groups = PYPROJECT["project"], PYPROJECT["dependency-groups"]
    wanted = names(project["dependencies"]) | names(
        list(chain(*project["optional-dependencies"].values()))
    )
    wanted |= names(groups["dev"]) | names(groups["build"])
    assert wanted - locked("constraints.txt").keys() == set()
    assert names(groups["tools"]) - locked("scripts/tools.txt").keys() == set()
    assert names(groups["docs"]) - locked("scripts/docs.txt").keys() == set()
    assert {"faststream", "kstreams", "aiokafka"} - locked(
        "benchmarks/requirements.txt"
    ).keys() == set()


@pytest.mark.parametrize("part", ["scripts/demo.txt", "deploy/requirements.txt"])
def test_the_demo_and_the_image_have_the_versions_that_the_tests_have(part: str) -> None:
    everything = locked("constraints.txt")
    packages = locked(part)
    assert {name for name in packages if packages[name] != everything.get(name)} == set()
    assert names(PYPROJECT["project"]["dependencies"]) - packages.keys() == set()
    assert "pyspark" not in packages


def test_what_has_wheels_for_machines_is_locked_for_more_than_this_one() -> None:
    # Nine at least: three Pythons, on x86-64 and ARM, with glibc and for macOS.
    compiled = (
        "numpy",
        "pyarrow",
        "pydantic-core",
        "confluent-kafka",
        "asyncpg",
        "cramjam",
        "uvloop",
    )
    assert {name for name in compiled if len(locked("constraints.txt")[name]) < 9} == set()


def test_setup_installs_nothing_beside_the_lock() -> None:
    said = subprocess.run(
        ["make", "--always-make", "--dry-run", "setup"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n", " ")
    installs = [line for line in said.splitlines() if "pip install" in line]
    assert len(installs) == 3
    ourselves = [line for line in installs if "--require-hashes" not in line]
    assert all("--no-deps" in line and "--no-build-isolation" in line for line in ourselves)
    assert ["--editable ." in line for line in ourselves] == [True]


def test_the_demo_installs_its_own_lock_and_nothing_else_where_setup_was_not_run(
    tmp_path: Path,
) -> None:
    def would_run(*variables: str) -> list[str]:
        said = subprocess.run(
            ["make", "--dry-run", "demo", *variables],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.replace("\\\n", " ")
        return said.splitlines()

    small = tmp_path / "small"
    lines = would_run(f"VENV={tmp_path / 'missing'}", f"DEMO_VENV={small}")
    (install,) = [line for line in lines if "pip install" in line]
    assert install.endswith("--require-hashes --no-deps --requirement scripts/demo.txt")
    assert lines[-1] == f"{small}/bin/python -m reactive_kafka demo"

    full = tmp_path / "full"
    full.mkdir()
    (full / ".ready").touch()
    lines = would_run(f"VENV={full}", f"DEMO_VENV={small}")
    assert lines[-1] == f"{full}/bin/python -m reactive_kafka demo"
    assert not any("demo.txt" in line for line in lines)


def test_one_package_is_taken_out_of_the_lock_with_its_hashes() -> None:
    said = subprocess.run(
        [ROOT / "scripts/lock-of.sh", "pip"], capture_output=True, text=True, check=True
    ).stdout
    assert re.fullmatch(r"pip==[\d.]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+", said)
    missing = subprocess.run(
        [ROOT / "scripts/lock-of.sh", "pi"], capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "error: constraints.txt has no pi\n"


AUDITS = {
    0: "exit 0",
    1: 'for word; do case "$last" in --output) echo "{}" > "$word";; esac; last="$word"; done; exit 1',
    2: 'echo "cannot connect" >&2; exit 1',
}


@pytest.mark.parametrize("code", AUDITS)
def test_an_audit_that_could_not_be_made_is_not_one_that_found_nothing(
    code: int, tmp_path: Path
) -> None:
    """Row S14 of the faults."""
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\n{AUDITS[code]}\n")
    tool.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts/audit.sh", tool], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    says = ("no advisory is known", "there are advisories", "NOT DONE: no advisories can be had")[
        code
    ]
    assert says in done.stdout + done.stderr
