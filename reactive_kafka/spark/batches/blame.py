"""What is to blame for the failure of a Spark job, by the error's types, condition and text. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reactive_kafka.errors import BadDataError, ClusterError, DataLossError, OffloadError, WorkerLostError

LONGEST_REASON = 300

BadCodeError = OffloadError  # the function, the sink or the source: it would fail for every record
_LOST_TYPES = frozenset({"ConnectionError", "EOFError", "Py4JNetworkError", "Py4JError", "RpcError"})
_LOST_TEXTS = (
    "SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
    "'NoneType' object has no attribute 'sc'",  # of a session whose context was stopped
    "'NoneType' object has no attribute 'setLocalProperty'",
    "INVALID_HANDLE.SESSION_",
    "[NO_ACTIVE_SESSION]",
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
)
_TEXTS: Mapping[type[OffloadError], tuple[str, ...]] = {
    ClusterError: (
        "PYTHON_VERSION_MISMATCH", "Python in worker has different version", "Python worker failed to connect back",
        "Cannot run program",  # no Python at all where the executors are
        "All masters are unresponsive", "Master removed our application", "Application has been killed",
        "org.apache.kafka.common.errors.TimeoutException",  # executors did not reach Kafka
        "org.apache.kafka.common.errors.DisconnectException",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset",
    ),
    DataLossError: ("KafkaIllegalStateException", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException"),
    WorkerLostError: ("Python worker exited unexpectedly", "ExecutorLostFailure", "FetchFailed"),
    BadCodeError: (
        "org.apache.kafka.common.errors.",  # rights, certificates
        "SPARK_JOB_CANCELLED", "OPERATION_CANCELED",  # by the function itself: the jobs that we cancel are not judged
        "java.net.ConnectException", "java.net.UnknownHostException", "java.net.SocketTimeoutException",  # a sink
        "No space left on device", "Mkdirs failed to create", "AccessControlException",
    ),
}  # fmt: skip
"""What texts of Spark's own errors say; the first match counts."""
_BAD_CODE_TYPES = frozenset({
    "AnalysisException", "ParseException", "UnsupportedOperationException", "SparkNoSuchElementException",
    "PicklingError", "PySparkTypeError", "PySparkValueError", "PySparkAttributeError", "PySparkNotImplementedError",
    "PySparkRuntimeError", "PySparkImportError", "ImportError", "NameError", "SyntaxError", "NotImplementedError",
    "OSError",  # a file, a socket, a database that is away
    "OperationalError", "InterfaceError",  # the names in every database driver
})  # fmt: skip
_BAD_DATA_TYPES = frozenset(
    {"NumberFormatException", "ArithmeticException", "DateTimeException", "SparkRuntimeException"}
)
_BAD_CODE_IN_PYTHON = re.compile(
    r"(\w+\.)*(ModuleNotFoundError|ImportError|NameError|SyntaxError|NotImplementedError|"
    r"Connection\w*Error|TimeoutError|OperationalError|InterfaceError)\b"
)
"""The start of the line that ``reason_of`` makes of an error in an executor's Python."""
_IN_A_TASK = re.compile(
    "Job aborted due to stage failure|TASK_WRITE_FAILED|java.lang.OutOfMemoryError|maxResultSize|"
    r"Caused by: org\.apache\.spark\."  # toLocalIterator passes errors on as they are
    r"(Spark(Runtime|Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds)|api\.python\.Python)Exception"
)
_LOST_RECORDS = re.compile(r"Could not read records in offset \[\d+, \d+\) for topic partition \S+")


def looks_lost(error: BaseException) -> bool:
    """Whether the driver may be gone. The session has to be asked: a function's own sockets raise the same errors."""
    names = _names(error)
    if "Py4JJavaError" not in names and names & _LOST_TYPES:
        return True
    return any(text in str(error) for text in _LOST_TEXTS)


def blame_for(error: BaseException) -> type[OffloadError]:
    """Judge an error of a function or of Spark. The session lives on, and the job was not cancelled.

    Returns:
        What is to blame: BadDataError for some of the records, which smaller batches can show; ``BadCodeError``;
        DataLossError for records of a range that are no longer in the log, where smaller ranges do not help;
        WorkerLostError for a process that ran a task, an accident once, bad data the second time; ClusterError if it
        is not the batch, which runs again.
    """
    text, names = str(error), _names(error)
    if _is_sparks(error, names):
        for blame, texts in _TEXTS.items():
            if any(known in text for known in texts):
                return blame
    if names & _BAD_DATA_TYPES:  # before bad code: a NumberFormatException is an IllegalArgumentException, too
        return BadDataError
    if names & _BAD_CODE_TYPES or "IllegalArgumentException" in names or _BAD_CODE_IN_PYTHON.match(reason_of(error)):
        return BadCodeError
    if "Py4JError" in names:  # in the driver it is the function's own doing, in a task the records'
        return BadDataError if _IN_A_TASK.search(text) else BadCodeError
    return BadDataError


def reason_of(error: BaseException) -> str:
    """An error of the function or of Spark in one line: Spark's own texts have pages of stack traces."""
    if lost := _LOST_RECORDS.search(str(error)):
        return f"Kafka has lost records: {lost[0]}"
    lines = [line for line in str(error).split("JVM stacktrace:")[0].splitlines() if line.strip()]
    if inner := _python_error(lines):  # raised on an executor; the names of Spark's wrappers say nothing
        return inner[:LONGEST_REASON]
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # the next line names the Java exception
    text = lines[0].strip().removeprefix(": ") if lines else ""
    return f"{type(error).__name__}: {text}"[:LONGEST_REASON] if text else type(error).__name__


def _python_error(lines: list[str]) -> str | None:
    """The last line of the first Python traceback in *lines*: the first line after its frames that is not indented."""
    starts = (number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line)
    frames = lines[next(starts, len(lines)) + 1 :]
    return next((line.strip() for line in frames if not line[0].isspace()), None)


def _names(error: BaseException) -> frozenset[str]:
    return frozenset(one.__name__ for one in type(error).__mro__)


def _is_sparks(error: BaseException, names: frozenset[str]) -> bool:
    """Whether Spark raised it: texts of a function's own errors mean nothing."""
    return "PySparkException" in names or "Py4JError" in names or type(error).__module__.startswith("grpc")
