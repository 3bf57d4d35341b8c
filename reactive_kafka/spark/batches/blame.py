"""What is to blame if a Spark job fails, and what follows: another attempt, smaller parts, or a
nack. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reactive_kafka.errors import (
    BadDataError,
    ClusterError,
    DataLossError,
    OffloadError,
    WorkerLostError,
)

LONGEST_REASON = 300


class UnfitExecutorsError(ClusterError):
    """Spark lacks something that somebody has to install there: a data source, a Java class, a
    Python module.

    The function needs it, or reading the channel's format does. No record can be to blame, so none
    is nacked.
    """


# How what they raise then begins.
CANNOT_READ = "reactive-kafka: executors cannot read the format"
# The function, the sink or the source: it would fail for every record.
BadCodeError = OffloadError
_LOST_TYPES = frozenset(
    {"ConnectionError", "EOFError", "Py4JNetworkError", "Py4JError", "RpcError"}
)
_LOST_TEXTS = (
    "SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
    # Of a session whose context was stopped.
    "'NoneType' object has no attribute 'sc'",
    "'NoneType' object has no attribute 'setLocalProperty'",
    "INVALID_HANDLE.SESSION_",
    "[NO_ACTIVE_SESSION]",
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
)
_TEXTS: Mapping[type[OffloadError], tuple[str, ...]] = {
    UnfitExecutorsError: (
        CANNOT_READ,
        "DATA_SOURCE_NOT_FOUND",
        "Failed to find data source",
        "java.lang.ClassNotFoundException",
        "java.lang.NoClassDefFoundError",
    ),
    ClusterError: (
        "PYTHON_VERSION_MISMATCH",
        "Python in worker has different version",
        "Python worker failed to connect back",
        # No Python at all where the executors are.
        "Cannot run program",
        "All masters are unresponsive",
        "Master removed our application",
        "Application has been killed",
        # Executors did not reach Kafka.
        "org.apache.kafka.common.errors.TimeoutException",
        "org.apache.kafka.common.errors.DisconnectException",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset",
    ),
    DataLossError: ("KafkaIllegalStateException", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException"),
    WorkerLostError: ("Python worker exited unexpectedly", "ExecutorLostFailure", "FetchFailed"),
    BadCodeError: (
        # Rights, certificates.
        "org.apache.kafka.common.errors.",
        # By the function itself: the jobs that we cancel are not judged.
        "SPARK_JOB_CANCELLED",
        "OPERATION_CANCELED",
        # A sink.
        "java.net.ConnectException",
        "java.net.UnknownHostException",
        "java.net.SocketTimeoutException",
        "No space left on device",
        "Mkdirs failed to create",
        "AccessControlException",
    ),
}
"""What texts of Spark's own errors say; the first match counts."""
_BAD_CODE_TYPES = frozenset(
    {
        "AnalysisException",
        "ParseException",
        "UnsupportedOperationException",
        "SparkNoSuchElementException",
        "PicklingError",
        "PySparkTypeError",
        "PySparkValueError",
        "PySparkAttributeError",
        "PySparkNotImplementedError",
        "PySparkRuntimeError",
        "PySparkImportError",
        "ImportError",
        "NameError",
        "SyntaxError",
        "NotImplementedError",
        # A file, a socket, a database that is away.
        "OSError",
        # The names in every database driver.
        "OperationalError",
        "InterfaceError",
    }
)
_BAD_DATA_TYPES = {
    "NumberFormatException",
    "ArithmeticException",
    "DateTimeException",
    "SparkRuntimeException",
}
_BAD_CODE_IN_PYTHON = re.compile(
    r"(\w+\.)*(ImportError|NameError|SyntaxError|NotImplementedError|"
    r"Connection\w*Error|TimeoutError|OperationalError|InterfaceError)\b"
)
"""The start of the line that ``reason_of`` makes of an error in an executor's Python."""
_LACKS_A_MODULE = re.compile(r"(\w+\.)*ModuleNotFoundError\b")
"""The same, where a package is missing; so begins that of the function's own error."""
_IN_A_TASK = re.compile(
    "Job aborted due to stage failure|TASK_WRITE_FAILED|java.lang.OutOfMemoryError|maxResultSize|"
    # ToLocalIterator passes errors on as they are.
    r"Caused by: org\.apache\.spark\."
    r"(Spark(Runtime|Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds)|api\.python\.Python)Exception"
)
_LOST_RECORDS = re.compile(r"Could not read records in offset \[\d+, \d+\) for topic partition \S+")


def looks_lost(error: BaseException) -> bool:
    """Whether the driver may be gone. The session has to be asked: a function's own sockets raise
    the same errors.
    """
    names = _names(error)
    text = _text_of(error)
    if "Py4JJavaError" not in names and names & _LOST_TYPES:
        return True
    # While a session stops, a job fails with whatever the driver comes upon: INTERNAL_ERROR, a
    # NullPointerException.
    if "Py4JJavaError" in names and not _IN_A_TASK.search(text):
        return True
    return any(known in text for known in _LOST_TEXTS)


def blame_for(error: BaseException) -> type[OffloadError]:
    """Judge an error of a function or of Spark. The session lives on, and the job was not
    cancelled.

    BadDataError: some of the records, which smaller batches can show. DataLossError: records of a
    range that are no longer in the log, where smaller ranges do not help. WorkerLostError: a
    process that ran a task; an accident once, bad data the second time. ClusterError: not the
    batch, which runs again. UnfitExecutorsError: it cannot run there, whatever its records are.
    """
    text = _text_of(error)
    names = _names(error)
    # Texts of a function's own errors mean nothing.
    if (
        "PySparkException" in names
        or "Py4JError" in names
        or type(error).__module__.startswith("grpc")
    ):
        for blame, texts in _TEXTS.items():
            if any(known in text for known in texts):
                return blame
    if _LACKS_A_MODULE.match(reason_of(error)):
        return UnfitExecutorsError
    # Before bad code: a NumberFormatException is an IllegalArgumentException, too.
    if names & _BAD_DATA_TYPES:
        return BadDataError
    if (
        names & _BAD_CODE_TYPES
        or "IllegalArgumentException" in names
        or _BAD_CODE_IN_PYTHON.match(reason_of(error))
    ):
        return BadCodeError
    # In the driver it is the function's own doing, in a task the records'
    if "Py4JError" in names:
        return BadDataError if _IN_A_TASK.search(text) else BadCodeError
    return BadDataError


def reason_of(error: BaseException) -> str:
    """An error of the function or of Spark in one line: Spark's own texts have pages of stack
    traces.
    """
    said = _text_of(error)
    if lost := _LOST_RECORDS.search(said):
        return f"Kafka has lost records: {lost[0]}"
    lines = [line for line in said.split("JVM stacktrace:")[0].splitlines() if line.strip()]
    # Raised on an executor; the names of Spark's wrappers say nothing.
    if inner := _python_error(lines):
        return inner[:LONGEST_REASON]
    if lines and lines[0].startswith("An error occurred while calling"):
        # The next line names the Java exception.
        lines = lines[1:]
    text = lines[0].strip().removeprefix(": ") if lines else ""
    return f"{type(error).__name__}: {text}"[:LONGEST_REASON] if text else type(error).__name__


def _python_error(lines: list[str]) -> str | None:
    """The last line of the first Python traceback in *lines*: the first line after its frames that
    is not indented.
    """
    starts = (
        number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line
    )
    frames = lines[next(starts, len(lines)) + 1 :]
    return next((line.strip() for line in frames if not line[0].isspace()), None)


def _text_of(error: BaseException) -> str:
    """The error's text; none if it was in a driver that is gone: Py4J asks for it only when
    somebody wants it.
    """
    try:
        return str(error)
    except Exception:
        return ""


def _names(error: BaseException) -> frozenset[str]:
    return frozenset(one.__name__ for one in type(error).__mro__)
