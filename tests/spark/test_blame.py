from typing import Any

import pytest

from reactive_kafka.errors import (
    BadDataError,
    ChannelClosedError,
    ClusterError,
    ConfigError,
    DataLossError,
    WorkerLostError,
)
from reactive_kafka.spark.batches.blame import (
    CANNOT_READ,
    BadCodeError,
    UnfitExecutorsError,
    blame_for,
    looks_lost,
    reason_of,
)


def spark_error(name: str, text: str, *bases: str) -> Exception:
    """An error of a type that is called like Spark's, for texts that are hard to come by."""
    kind: Any = Exception
    for base in (*reversed(bases), name):
        kind = type(base, (kind,), {})
    return kind(text)  # type: ignore[no-any-return]


def java_error(text: str) -> Exception:
    return spark_error(
        "Py4JJavaError", f"An error occurred while calling o1.count.\n: {text}", "Py4JError"
    )


STAGE = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times: "
TEXTS = {
    "a range whose records are gone": (
        java_error(
            f"{STAGE}org.apache.spark.sql.kafka010.KafkaIllegalStateException: Cannot fetch offset 5 (topic-0)"
        ),
        DataLossError,
    ),
    "no right to read": (
        java_error(
            f"{STAGE}org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [t]"
        ),
        BadCodeError,
    ),
    "executors do not reach Kafka": (
        java_error("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired"),
        ClusterError,
    ),
    "Kafka does not answer executors": (
        java_error(
            f"{STAGE}java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 ms"
        ),
        ClusterError,
    ),
    "a row for a partition that its topic does not have": (
        java_error(
            f"{STAGE}org.apache.kafka.common.errors.TimeoutException: Partition 7 of topic totals"
            " with partition count 1 is not present in metadata after 2000 ms."
        ),
        BadDataError,
    ),
    "a row that is too large for its topic": (
        java_error(
            f"{STAGE}org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000080"
            " bytes when serialized which is larger than 1048576"
        ),
        BadDataError,
    ),
    "a function that sends to a channel that does not exist": (
        ConfigError("batch.send(df, 'total'): no [outgoing.total] is configured"),
        BadCodeError,
    ),
    "a function that sends without the connector": (
        UnfitExecutorsError("batch.send(df, 'totals'): Spark has no Kafka connector"),
        UnfitExecutorsError,
    ),
    "a function that sends without the right": (
        ClusterError("batch.send(df, 'totals'): not allowed to write to topic totals"),
        ClusterError,
    ),
    "a function that sends while the application stops": (
        ChannelClosedError("outgoing channel 'totals' has stopped"),
        ClusterError,
    ),
    "another Python": (
        spark_error(
            "PythonException",
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9",
            "PySparkException",
        ),
        ClusterError,
    ),
    "executors that cannot read the format": (
        spark_error(
            "PythonException",
            f"RuntimeError: {CANNOT_READ} 'avro': No module named 'x'",
            "PySparkException",
        ),
        UnfitExecutorsError,
    ),
    "a data source that is not installed": (
        spark_error(
            "AnalysisException",
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.",
            "PySparkException",
        ),
        UnfitExecutorsError,
    ),
    "a data source that an older Spark does not find": (
        java_error(
            "java.lang.ClassNotFoundException: Failed to find data source: delta. Please find packages at"
        ),
        UnfitExecutorsError,
    ),
    "a Java class that executors lack": (
        java_error(f"{STAGE}java.lang.NoClassDefFoundError: org/postgresql/Driver"),
        UnfitExecutorsError,
    ),
    "a module that the driver lacks": (
        ModuleNotFoundError("No module named 'pandas'"),
        UnfitExecutorsError,
    ),
    "a module that executors lack": (
        spark_error(
            "PythonException",
            "An exception was thrown\nTraceback (most recent call last):\n  File 'f.py', line 1, in f\n"
            "ModuleNotFoundError: No module named 'pandas'",
            "PySparkException",
        ),
        UnfitExecutorsError,
    ),
    "a name that a module does not have": (
        ImportError("cannot import name 'fd' from 'jobs'"),
        BadCodeError,
    ),
    "a function's words on a data source mean nothing": (
        ValueError("DATA_SOURCE_NOT_FOUND"),
        BadDataError,
    ),
    "no Python": (
        java_error(f'{STAGE}java.io.IOException: Cannot run program "python3.9"'),
        ClusterError,
    ),
    "the master gave us up": (
        java_error(f"{STAGE}Master removed our application: KILLED"),
        ClusterError,
    ),
    "executors that died four times": (
        java_error(
            f"{STAGE}ExecutorLostFailure (executor 3 exited caused by one of the running tasks)"
        ),
        WorkerLostError,
    ),
    "a sink that is away": (
        java_error(f"{STAGE}java.net.ConnectException: Connection refused"),
        BadCodeError,
    ),
    "a disk that is full": (
        java_error(f"{STAGE}java.io.IOException: No space left on device"),
        BadCodeError,
    ),
    "an error that toLocalIterator hands on": (
        java_error(
            "org.apache.spark.SparkException: Exception thrown in awaitResult:\n\tat Some.java\n"
            "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] broken SQLSTATE: P0001"
        ),
        BadDataError,
    ),
    "a task's own error": (java_error(f"{STAGE}java.lang.NullPointerException"), BadDataError),
    "too much for the driver": (
        java_error("java.lang.OutOfMemoryError: Java heap space"),
        BadDataError,
    ),
    "cancelled by the function itself": (
        spark_error(
            "UnknownException", "[SPARK_JOB_CANCELLED] Job 1 cancelled", "PySparkException"
        ),
        BadCodeError,
    ),
    "a database that is away": (
        spark_error("OperationalError", "connection refused"),
        BadCodeError,
    ),
    "a file that cannot be written": (PermissionError("/data"), BadCodeError),
    "a typing mistake": (NameError("name 'fd' is not defined"), BadCodeError),
    "what the function makes of a record": (ValueError("no such customer"), BadDataError),
    "a function's words mean nothing": (
        ValueError("Python worker exited unexpectedly"),
        BadDataError,
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_who_is_to_blame(name: str) -> None:
    error, verdict = TEXTS[name]
    assert blame_for(error) is verdict


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        EOFError(),
        spark_error("Py4JNetworkError", "Answer from Java side is empty", "Py4JError"),
        java_error(
            "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
        ),
        java_error("Job 3 cancelled because SparkContext was shut down"),
        java_error('org.apache.spark.SparkException: [INTERNAL_ERROR] The "count" action failed.'),
        java_error("java.lang.NullPointerException"),
        AttributeError("'NoneType' object has no attribute 'sc'"),
        spark_error(
            "SparkConnectGrpcException",
            "StatusCode.UNAVAILABLE: failed to connect",
            "PySparkException",
        ),
    ],
)
def test_what_a_driver_that_is_gone_looks_like(error: BaseException) -> None:
    assert looks_lost(error)


@pytest.mark.parametrize(
    "error", [ValueError("x"), java_error(f"{STAGE}java.lang.NullPointerException"), KeyError("sc")]
)
def test_what_says_nothing_of_the_driver(error: BaseException) -> None:
    assert not looks_lost(error)


def test_records_that_are_no_more_are_named_by_their_range() -> None:
    error = java_error(
        f"{STAGE}KafkaIllegalStateException: Some data may have been lost because they are not available any more.\n"
        "Reason: Could not read records in offset [2, 9) for topic partition t-0 with consumer group spark-1.\n"
    )
    assert blame_for(error) is DataLossError
    assert reason_of(error) == (
        "Kafka has lost records: Could not read records in offset [2, 9) for topic partition t-0"
    )


def test_a_reason_is_one_line_with_the_errors_type() -> None:
    assert reason_of(ValueError("no such customer\nsecond line")) == "ValueError: no such customer"
    assert reason_of(KeyError()) == "KeyError"


def test_the_reason_of_an_error_on_an_executor_is_that_of_the_users_python() -> None:
    text = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "job.py", line 3, in parse\n    raise ValueError("bad row")\n'
        "ValueError: bad row\n\n\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    assert reason_of(RuntimeError(text)) == "ValueError: bad row"


def test_the_reason_of_a_java_error_is_the_java_exception() -> None:
    text = "An error occurred while calling o45.count.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b.C"
    assert (
        reason_of(RuntimeError(text))
        == "RuntimeError: org.apache.spark.SparkException: Job aborted"
    )


def test_an_error_whose_text_is_in_a_driver_that_is_gone_is_named_by_its_type_and_looks_lost() -> (
    None
):
    class Py4JError(Exception):
        pass

    class Py4JJavaError(Py4JError):
        def __str__(self) -> str:
            # As Py4J's does.
            raise ConnectionRefusedError(111, "Connection refused")

    assert reason_of(Py4JJavaError()) == "Py4JJavaError"
    assert looks_lost(Py4JJavaError())
    assert blame_for(Py4JJavaError()) is BadCodeError
