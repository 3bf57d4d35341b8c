"""The payments example: its own tests, run as its team runs them, in memory and on a real Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import environment

FOLDER = Path(__file__).parents[2] / "examples" / "payments"


def run_its_tests(**env: str) -> str:
    """What pytest prints in the example's folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        command, cwd=FOLDER, env=environment(env), capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_its_tests_pass_in_memory() -> None:
    assert "6 passed" in run_its_tests()


@pytest.mark.kafka
def test_its_tests_pass_on_kafka(kafka: str) -> None:
    assert "6 passed" in run_its_tests(ON_KAFKA="1", REACTIVE_KAFKA_TEST_BOOTSTRAP=kafka)
