"""The fixtures do what users are told, in a pytest run of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = "from reactive_kafka.testing.plugin import kafka as kafka, memory_broker as memory_broker\n"


def run_pytest(folder: Path, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(test)
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_test_gets_a_memory_broker_of_its_own(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        "def test_one(memory_broker):\n"
        "    memory_broker.produce('orders', b'x')\n"
        "def test_two(memory_broker):\n"
        "    assert memory_broker.topics() == {}\n",
    )
    assert "2 passed" in done.stdout


def test_a_broker_that_runs_already_is_used(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        "def test_it(kafka):\n    assert kafka == 'kafka.example:9092'\n",
        REACTIVE_KAFKA_TEST_BOOTSTRAP="kafka.example:9092",
    )
    assert "1 passed" in done.stdout


def test_where_kafka_cannot_be_had_the_test_fails_and_says_why(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        "def test_it(kafka): ...\n",
        PATH=str(tmp_path),
        JAVA_HOME=str(fake_java_home(tmp_path)),
        REACTIVE_KAFKA_CACHE=str(tmp_path / "cache"),
        REACTIVE_KAFKA_TEST_BOOTSTRAP="",
    )
    assert "1 error" in done.stdout
    assert "skipped" not in done.stdout
    assert "install Maven" in done.stdout


def fake_java_home(folder: Path) -> Path:
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    return folder / "jdk"
