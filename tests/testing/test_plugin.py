"""The fixtures do what users are told, in a pytest run of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from reactive_kafka.testing.plugin import kafka, memory_broker, pytest_configure, pytest_pyfunc_call, virtual_time
"""
FIXTURES_OF_TESTS = ("-o", "asyncio_default_fixture_loop_scope=function")
AUTO = ("-o", "asyncio_mode=auto", *FIXTURES_OF_TESTS)


def run_pytest(
    folder: Path, test: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(test)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PYTEST_ADDOPTS")
    }
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"),
            *(*options, "--rootdir", str(folder), str(folder)),
        ],
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


AN_HOUR = """
import asyncio
import time

import pytest


@pytest.mark.virtual_time
async def test_marked():
    loop, began = asyncio.get_running_loop(), time.monotonic()
    await asyncio.sleep(3600)
    assert loop.time() == loop.clock.monotonic() == 3600
    assert time.monotonic() - began < 60


async def test_with_the_fixture(virtual_time):
    await asyncio.sleep(3600)
    assert virtual_time is asyncio.get_running_loop().clock
    assert virtual_time.monotonic() == 3600


@pytest.mark.virtual_time
class TestOfAClass:
    @pytest.mark.parametrize("seconds", [1, 2])
    async def test_marked(self, seconds, virtual_time, tmp_path):
        await asyncio.sleep(seconds)
        assert virtual_time.monotonic() == seconds
        assert tmp_path.is_dir()


@pytest.mark.virtual_time(seed=1)
async def test_with_a_seed():
    order = []

    async def note(number):
        order.append(number)

    await asyncio.gather(*(note(number) for number in range(20)))
    assert sorted(order) == list(range(20)) != order
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-p", "no:asyncio", "-p", "no:anyio"), id="without a plugin for async tests"),
        pytest.param(AUTO, id="pytest-asyncio, auto"),
        pytest.param(
            ("-o", "asyncio_mode=strict", *FIXTURES_OF_TESTS), id="pytest-asyncio, strict"
        ),
        pytest.param(("-p", "no:asyncio", "-o", "anyio_mode=auto"), id="anyio, auto"),
    ],
)
def test_an_hour_of_virtual_time_passes_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run_pytest(tmp_path, AN_HOUR, *options)
    assert "5 passed" in done.stdout, done.stdout
    assert "warning" not in done.stdout, done.stdout


def test_a_test_after_one_in_virtual_time_has_the_loop_of_its_plugin(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        "import asyncio, pytest\n"
        "@pytest.mark.virtual_time\n"
        "async def test_one(): ...\n"
        "async def test_two():\n"
        "    assert not hasattr(asyncio.get_running_loop(), 'clock')\n",
        *AUTO,
    )
    assert "2 passed" in done.stdout, done.stdout


def test_a_test_in_virtual_time_that_fails_or_hangs_says_so(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        "import asyncio, pytest\n"
        "@pytest.mark.virtual_time\n"
        "async def test_fails():\n    assert 1 == 2\n"
        "@pytest.mark.virtual_time\n"
        "async def test_hangs():\n    await asyncio.Event().wait()\n"
        "@pytest.mark.virtual_time\n"
        "def test_is_not_async(): ...\n"
        "@pytest.mark.virtual_time(speed=2)\n"
        "async def test_misspelt(): ...\n",
    )
    assert "4 failed" in done.stdout
    for reason in (
        "assert 1 == 2",
        "DeadlockError: every task waits",
        "is for async tests",
        "argument 'speed'",
    ):
        assert reason in done.stdout


def fake_java_home(folder: Path) -> Path:
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    return folder / "jdk"
