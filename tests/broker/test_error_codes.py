"""The table of error codes is Kafka's own, and aiokafka's answers keep the number of every code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import aiokafka.errors as kafka_errors
import pytest

from reactive_kafka.broker.aiokafka.error_classes import class_for, code_of, is_retriable
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.error_codes import (
    SOURCE_VERSION,
    TABLE,
    Act,
    ErrorCode,
    error_code,
)
from reactive_kafka.broker.jars import KAFKA_VERSION, find_java, kafka_jars
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    NotOwnerError,
    RejectedRecordError,
    TransientBrokerError,
)

PROGRAM = Path(__file__).parent / "ErrorCodes.java"
OUTSIDE = [-2, 137, 999, 32_767]
"""Codes that no Kafka has."""

Row = tuple[int, str, bool]


def printed(jars: Path) -> list[Row]:
    """Kafka's own table, by the jars in a folder."""
    run = [find_java(), "-cp", f"{jars}/*", str(PROGRAM)]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return [(int(code), name, is_retriable == "true") for code, name, is_retriable in rows]


@pytest.mark.kafka
def test_the_table_has_every_code_of_kafka_with_its_name_and_whether_it_is_retriable() -> None:
    assert SOURCE_VERSION == KAFKA_VERSION
    assert [row[:3] for row in TABLE] == printed(kafka_jars())


def test_each_code_is_in_the_table_once() -> None:
    assert [row.code for row in TABLE] == list(range(-1, len(TABLE) - 1))


@pytest.mark.parametrize("code", [row.code for row in TABLE if row.code] + OUTSIDE)
def test_an_exception_keeps_the_number_of_its_code_also_where_aiokafka_wraps_it(code: int) -> None:
    error = class_for(code)()
    assert kafka_errors.for_code(code) is class_for(code)
    assert str(error).startswith(f"[Error {code}]")
    caused = kafka_errors.KafkaError("Unexpected error during batch delivery")
    caused.__cause__ = error
    for wrapped in (
        error,
        caused,
        kafka_errors.KafkaError(repr(error)),
        kafka_errors.KafkaError(f"task: {error!r}"),
    ):
        assert code_of(wrapped) == error_code(code)
        assert f"[Error {code}]" in str(translate(wrapped))


@pytest.mark.parametrize("row", [row for row in TABLE if row.code], ids=lambda row: row.name)
def test_what_kafka_calls_retriable_is_written_again_and_nothing_else_is_but_what_a_new_client_mends(
    row: ErrorCode,
) -> None:
    code, _, can_be_retried, act = row
    error = class_for(code)()
    assert is_retriable(error) is can_be_retried
    is_written_again = type(translate(error, is_write=True)) is TransientBrokerError
    assert is_written_again == (can_be_retried or act is Act.NEW_CLIENT)


KINDS: list[tuple[int, type[BrokerError], type[BrokerError]]] = [
    # code, what it is of a write, what it is of any other request
    (-1, RejectedRecordError, FatalBrokerError),
    (10, RejectedRecordError, RejectedRecordError),
    (22, RejectedRecordError, NotOwnerError),
    (29, FatalBrokerError, FatalBrokerError),
    (43, RejectedRecordError, FatalBrokerError),
    (45, TransientBrokerError, TransientBrokerError),
    (53, FatalBrokerError, FatalBrokerError),
    (75, TransientBrokerError, TransientBrokerError),
    (81, FatalBrokerError, FatalBrokerError),
    (87, RejectedRecordError, RejectedRecordError),
    (999, RejectedRecordError, FatalBrokerError),
]


@pytest.mark.parametrize(("code", "of_write", "otherwise"), KINDS)
def test_who_must_act_follows_from_the_code_and_from_what_was_asked(
    code: int, of_write: type[BrokerError], otherwise: type[BrokerError]
) -> None:
    error = class_for(code)()
    assert type(translate(error, is_write=True)) is of_write
    assert type(translate(error)) is otherwise


def test_an_error_without_a_code_has_none() -> None:
    assert code_of(kafka_errors.KafkaConnectionError("reset")) is None
    assert code_of(kafka_errors.KafkaError("the client was closed")) is None
    assert code_of(ValueError("x")) is None
