import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reactive_kafka.spark.session.driver import (
    DriverLog,
    end_process,
    environment,
    submit_arguments,
)


def printing(log: DriverLog, *lines: str) -> None:
    """A process that prints *lines* where a driver would."""
    code = f"import sys; sys.stderr.write({chr(10).join([*lines, ''])!r})"
    subprocess.run([sys.executable, "-c", code], stderr=log.target, check=True)


# As Spark 4.1 prints it, shortened.
A_FAILED_TASK = (
    "26/11/21 18:58:56 ERROR Executor: Exception in task 0.0 in stage 16.0 (TID 15)",
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):",
    '  File "/app/multi.py", line 42, in chk',
    '    if b"boom" in bytes(v): raise ValueError("boom")',
    "ValueError: boom record boom 3",
    "",
    "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)",
    "Caused by: java.io.IOException: x",
    "\t... 3 more",
    "26/11/21 18:58:56 WARN TaskSetManager: Lost task 0.0 in stage 16.0: PythonException: Traceback (most recent call",
    '  File "/app/multi.py", line 42, in chk',
    "ValueError: boom record boom 3",
    "\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:650)",
)
AT_EACH_START = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    "26/11/21 18:57:26 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1",
    "26/11/21 18:57:26 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform",
    'Setting default log level to "WARN".',
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
)


def levels_of(caplog: pytest.LogCaptureFixture, *lines: str) -> list[str]:
    """How loud each of *lines* is in our log."""
    caplog.set_level(logging.DEBUG, "reactive_kafka.spark.driver")
    log = DriverLog()
    printing(log, *lines)
    log.last_words()
    assert [record.getMessage() for record in caplog.records] == list(lines)
    return [record.levelname for record in caplog.records]


def test_what_a_driver_prints_is_logged_at_sparks_own_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = (
        "26/11/21 11:46:36 ERROR Executor: Exception in task 0.0",
        "26/11/21 11:46:36 INFO SparkContext: Running Spark",
        "26/11/21 11:46:37 WARN TaskSetManager: Lost task",
        "26/11/21 11:46:37 WARN TaskSetManager: Stage 1 contains a task of very large size (1313 KiB).",
        "26/11/21 11:46:37 WARN FairSchedulableBuilder: A job was submitted with scheduler pool clicks, which has not",
        "26/11/21 19:12:01 WARN CacheManager: Data has already been cached.",
        "26/11/21 18:58:52 WARN TaskSetManager: Lost task 1.0 in stage 11.0 (TID 13) (localhost executor driver): "
        "TaskKilled (Stage cancelled: [SPARK_JOB_CANCELLED] Job 8 cancelled part of cancelled job group x)",
        "26/11/21 18:58:52 WARN PythonUDFRunner: Incomplete task 0.0 in stage 16 (TID 21) interrupted: Attempting",
    )
    assert levels_of(caplog, *lines) == ["ERROR", "INFO", "WARNING", *["DEBUG"] * 5]


def test_of_a_stack_trace_only_the_first_lines_of_an_error_are_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert levels_of(caplog, *A_FAILED_TASK) == [
        *["ERROR"] * 3,
        *["DEBUG"] * 6,
        "WARNING",
        *["DEBUG"] * 3,
    ]


def test_what_a_driver_prints_at_each_start_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert levels_of(caplog, *AT_EACH_START) == [
        "DEBUG",
        "DEBUG",
        "WARNING",
        "DEBUG",
        "DEBUG",
        "DEBUG",
    ]


def test_what_a_python_worker_prints_is_shown_whatever_came_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = (
        "my own words",
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        "ValueError: my own",
    )
    levels = levels_of(caplog, *A_FAILED_TASK[:7], *own)
    assert levels[7:] == ["INFO", "INFO", "DEBUG", "INFO"]


def test_the_last_words_of_a_driver_are_one_line() -> None:
    log = DriverLog()
    printing(log, "JAVA_HOME is not set", "exit 1")
    assert log.last_words() == "JAVA_HOME is not set / exit 1"


@pytest.mark.parametrize(
    "error",
    [
        'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark',
        "Error: Could not find or load main class org.apache.spark.deploy.SparkSubmit",
        "Invalid maximum heap size: -Xmxlots",
        "26/11/21 19:06:56 ERROR SparkSubmit: Failed to load class x.",
    ],
)
def test_the_last_words_of_a_driver_are_its_error_and_not_what_it_says_at_each_start(
    error: str,
) -> None:
    log = DriverLog()
    printing(
        log,
        *AT_EACH_START,
        error,
        *["\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)"] * 30,
    )
    assert log.last_words() == error


def test_the_last_words_begin_with_the_first_error() -> None:
    log = DriverLog()
    printing(
        log,
        "starting",
        "Error: Could not create the Java Virtual Machine.",
        "Error: A fatal exception",
        "bye",
    )
    expected = "Error: Could not create the Java Virtual Machine. / Error: A fatal exception / bye"
    assert log.last_words() == expected


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
    process = subprocess.Popen(
        [sys.executable, "-c", WAYS[way]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    # It is up.
    process.stdout.readline()
    end_process(process, grace_s=0.3)
    process.stdout.close()
    assert (
        process.returncode
        == {"leaves when its input closes": 0, "leaves at SIGTERM": -15, "never leaves": -9}[way]
    )


def test_ending_a_driver_twice_is_harmless() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
    end_process(process)
    end_process(process)
    assert process.returncode == 0


def test_secrets_are_read_from_a_file_that_is_ours_alone_and_gone_after_the_launch() -> None:
    """Row S3 of the faults."""
    with submit_arguments(
        "spark.a.password=hunter2\n", {"PYSPARK_SUBMIT_ARGS": "--jars x pyspark-shell"}
    ) as added:
        text = added["PYSPARK_SUBMIT_ARGS"]
        found = re.fullmatch(
            r"--properties-file (\S+) --load-spark-defaults --jars x pyspark-shell", text
        )
        assert found is not None
        file = Path(found[1])
        assert file.read_text() == "spark.a.password=hunter2\n"
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()


def test_without_secrets_or_with_a_file_of_the_users_own_nothing_is_added() -> None:
    with (
        submit_arguments("", {}) as nothing,
        submit_arguments("a=b", {"PYSPARK_SUBMIT_ARGS": "--properties-file x"}) as no,
    ):
        assert (nothing, no) == ({}, {})


def test_our_own_configuration_is_not_in_the_environment_of_a_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row S3 of the faults."""
    name = "REACTIVE_KAFKA__KAFKA__SASL_PLAIN_PASSWORD"
    monkeypatch.setenv(name, "hunter2")
    with environment({"A_NEW_ONE": "1"}):
        assert name not in os.environ
        assert os.environ["A_NEW_ONE"] == "1"
    assert os.environ[name] == "hunter2"
    assert "A_NEW_ONE" not in os.environ
