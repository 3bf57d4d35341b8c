"""What aiokafka logs: each of its lines is told by an event of ours, or stays in the log, once a
second at most.
"""

from __future__ import annotations

import ast
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest

import reactive_kafka.events
from reactive_kafka.broker.aiokafka.client_log import (
    COVERED_BY_EVENTS,
    LOGGERS,
    QuietFilter,
    as_ours,
)

SOURCE = Path(aiokafka.__file__).parent
LEVELS = {"warning", "warn", "error", "exception", "critical", "fatal", "log"}

BUGS_OF_THE_CLIENT = ("Unexpected error in sender routine",)
"""Somebody has to hear of these: they tell more than our events."""
ANSWERS_THAT_END_A_REQUEST = (
    "'%s' is not a valid topic name",
    "Could not add consumer group due to unexpected error: %s",
    "Could not add partition %s due to unexpected error: %s",
    "Could not commit offset for partition %s due to unexpected error: %s",
    "Could not end transaction due to unexpected error: %s",
    "Error fetching metadata for topic %s: %s",
    "FindCoordinator Request failed: %s",
    "No broker metadata found in MetadataResponse -- ignoring.",
    "Unexpected error during InitProducerIdRequest: %s",
)
"""Answers that are rare, and that brokers give for reasons of many kinds: the line has the code
next to the request.
"""
NOT_USED_BY_US = (
    "Kafka 0.8.2 quirk -- FindCoordinatorResponse correlation id does not match request. This should go away once at "
    "least one topic has been initialized on the broker",
    "Sending username and password in the clear",
    'Unable connect to "%s:%s": %s',
    "Unable connect to node with id %s: %s",
    'Unable to request metadata from "%s:%s": %s',
    "Unable to request metadata from node with id %s: %r",
    "Unable to update metadata from %s",
    "Unexpected exception in AIOKafkaConnection",
    "socket.inet_pton not available on this platform. consider `pip install win_inet_pton`",
)
"""Connections and metadata are ours. The others are about old brokers and systems, which we do not
support.
"""
SINCE_0_15 = ("Producer metrics collector callback failed",)
"""Of its callbacks for metrics, which we do not use."""
UNUSED_FOLDERS = ("consumer", "coordinator")
"""Its consumer and the assignors of that. Membership and fetches are ours, so nothing of them logs
about a client of ours.
"""
LOGGERS_SINCE_0_15 = {"aiokafka.producer.message_accumulator"}
IS_0_14 = aiokafka.__version__.startswith("0.14.")
STAYS = {
    *BUGS_OF_THE_CLIENT,
    *ANSWERS_THAT_END_A_REQUEST,
    *NOT_USED_BY_US,
    *(() if IS_0_14 else SINCE_0_15),
}


def logging_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
        ):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("log", "logger", "logging"):
                yield node


def used_files() -> list[Path]:
    """The modules of the client without those of its consumer."""
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in UNUSED_FOLDERS
    ]


def lines_of_the_client() -> dict[str, str]:
    """What the parts of it that we use log as a warning or worse -> where."""
    found = {}
    for path in used_files():
        for call in logging_calls(ast.parse(path.read_text())):
            line, where = call.args[0], f"{path.relative_to(SOURCE)}:{call.lineno}"
            assert isinstance(line, ast.Constant), f"{where} logs something that is no text"
            assert isinstance(line.value, str), f"{where} logs something that is no text"
            found[line.value] = where
    return found


def loggers_of_the_client() -> set[str]:
    """The names of the loggers that the modules that we use make."""
    found = set()
    for path in used_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
                module = ".".join(("aiokafka", *path.relative_to(SOURCE).with_suffix("").parts))
                name = node.args[0]
                found.add(name.value if isinstance(name, ast.Constant) else module)
    return found


def is_told(line: str) -> bool:
    return line.startswith(tuple(COVERED_BY_EVENTS))


def test_each_line_of_the_client_is_told_by_us_or_stays_and_that_is_decided_for_none_that_is_gone() -> (
    None
):
    lines = lines_of_the_client()
    assert {
        line: where for line, where in lines.items() if not is_told(line) and line not in STAYS
    } == {}
    assert [line for line in STAYS if line not in lines] == []
    assert [line for line in STAYS if is_told(line)] == []
    assert [
        start for start in COVERED_BY_EVENTS if not any(line.startswith(start) for line in lines)
    ] == []


@pytest.mark.parametrize("start", COVERED_BY_EVENTS)
def test_what_is_silenced_names_events_that_there_are(start: str) -> None:
    names = COVERED_BY_EVENTS[start].split()
    assert names
    assert [name for name in names if not hasattr(reactive_kafka.events, name)] == []


def test_each_logger_of_the_client_has_the_filter() -> None:
    missing = LOGGERS_SINCE_0_15 if IS_0_14 else set()
    assert loggers_of_the_client() == set(LOGGERS) - missing
    for name in LOGGERS:
        assert [type(one) for one in logging.getLogger(name).filters].count(QuietFilter) == 1, name


def test_lines_of_an_applications_own_consumer_are_all_in_the_log() -> None:
    with as_ours():
        assert len(logged("aiokafka.consumer.fetcher", "Failed fetch messages from", times=3)) == 3


def test_the_package_does_not_use_the_consumer_of_the_client() -> None:
    package = Path(reactive_kafka.events.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text()
        assert "AIOKafkaConsumer" not in text, path
        for folder in UNUSED_FOLDERS:
            assert f"from aiokafka.{folder}" not in text, path
            assert f"import aiokafka.{folder}" not in text, path


PLACES = itertools.count()
"""Numbers of lines in the client's code: one passes once a second."""


def logged(name: str, line: str, *, times: int = 1) -> list[logging.LogRecord]:
    """What passes of a line that the client logs as a warning, with DEBUG off."""
    passed = list[logging.LogRecord]()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            passed.append(record)

    logger, noting = logging.getLogger(name), Noting()
    logger.addHandler(noting)
    try:
        place = next(PLACES)
        for _ in range(times):
            logger.handle(
                logger.makeRecord(name, logging.WARNING, "client.py", place, line, (), None)
            )
    finally:
        logger.removeHandler(noting)
    return passed


@pytest.mark.parametrize("line", [line for line in lines_of_the_client() if is_told(line)])
def test_a_line_that_we_tell_is_not_in_the_log_of_our_clients(line: str) -> None:
    with as_ours():
        assert [record for name in LOGGERS for record in logged(name, line)] == []


def test_a_client_of_the_applications_own_logs_as_ever() -> None:
    (record,) = logged("aiokafka.producer.sender", "Got error produce response: %s")
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("name", LOGGERS)
def test_a_line_that_stays_is_there_once_a_second(name: str) -> None:
    with as_ours():
        assert len(logged(name, "Unexpected error in sender routine", times=100)) == 1
