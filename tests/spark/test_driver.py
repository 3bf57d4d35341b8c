import logging
import os
import subprocess
import sys

import pytest

from reactive_kafka.spark.driver import DriverLog, end_process, environment


def printing(log: DriverLog, *lines: str) -> None:
    """A process that prints *lines* where a driver would."""
    code = f"import sys; sys.stderr.write({chr(10).join([*lines, ''])!r})"
    subprocess.run([sys.executable, "-c", code], stderr=log.target, check=True)


def test_what_a_driver_prints_is_logged_at_sparks_own_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "reactive_kafka.spark.driver")
    log = DriverLog()
    printing(
        log,
        "Using Spark's default log4j profile",
        "26/11/21 11:46:36 ERROR Executor: Exception in task 0.0",
        "\tat org.apache.spark.Executor",
        "26/11/21 11:46:37 WARN TaskSetManager: Lost task",
        "26/11/21 11:46:37 WARN TaskSetManager: Stage 1 contains a task of very large size (1313 KiB).",
        "26/11/21 11:46:37 WARN FairSchedulableBuilder: A job was submitted with scheduler pool clicks, which has not",
    )
    log.last_words()
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "ERROR", "WARNING", "DEBUG", "DEBUG"]


def test_the_last_words_of_a_driver_are_one_line() -> None:
    log = DriverLog()
    printing(log, "JAVA_HOME is not set", "exit 1")
    assert log.last_words() == "JAVA_HOME is not set / exit 1"


def test_the_environment_is_changed_only_for_the_launch() -> None:
    before = dict(os.environ)
    with environment({"JAVA_HOME": "/java", "REACTIVE_KAFKA_TEST_NEW": "1"}):
        assert os.environ["JAVA_HOME"] == "/java"
        assert os.environ["REACTIVE_KAFKA_TEST_NEW"] == "1"
    assert dict(os.environ) == before


WAYS = {
    "leaves when its input closes": "import sys; print(flush=True); sys.stdin.read()",
    "leaves at SIGTERM": "import time; print(flush=True); time.sleep(60)",
    "never leaves": "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_driver_survives_its_end(way: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAYS[way]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()  # it is up
    end_process(process, grace_s=0.3)
    process.stdout.close()
    assert process.returncode == {"leaves when its input closes": 0, "leaves at SIGTERM": -15, "never leaves": -9}[way]


def test_ending_a_driver_twice_is_harmless() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
    end_process(process)
    end_process(process)
    assert process.returncode == 0
