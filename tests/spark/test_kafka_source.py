"""Ranges as the reads that Spark needs, and with what; no Spark here."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.spark_batch import BatchPart, spark_range
from reactive_kafka.spark.session.debug_lines import hide
from reactive_kafka.spark.session.kafka_source import (
    KafkaSource,
    offsets_by_partition,
    offsets_json,
    split_into_reads,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def part(partition: TopicPartition, *pieces: range) -> BatchPart:
    return BatchPart(spark_range("g", partition, 0, 99), pieces, sum(map(len, pieces)))


class FakeSpark:
    """Notes what is read."""

    def __init__(self) -> None:
        self.read = self
        self.loaded: list[dict[str, str]] = []

    def format(self, name: str) -> FakeSpark:
        assert name == "kafka"
        return self

    def options(self, **options: str) -> FakeSpark:
        self.loaded.append(options)
        return self

    def load(self) -> FakeFrame:
        return FakeFrame([len(self.loaded)])


class FakeFrame:
    def __init__(self, reads: list[int]) -> None:
        self.reads = reads

    def union(self, other: FakeFrame) -> FakeFrame:
        return FakeFrame(self.reads + other.reads)


def test_neighbours_are_one_run_and_a_gap_makes_two() -> None:
    assert offsets_by_partition(
        [
            part(A0, range(5, 7), range(2, 5), range(9, 12)),
            part(A1, range(3)),
            part(A0, range(12, 13)),
        ]
    ) == {
        A0: [range(2, 7), range(9, 13)],
        A1: [range(3)],
    }


def test_each_read_has_one_run_of_a_partition() -> None:
    offsets = {
        A0: [range(2, 7), range(9, 13), range(20, 21)],
        A1: [range(3)],
        B0: [range(1), range(4, 5)],
    }
    assert split_into_reads(offsets) == [
        {A0: range(2, 7), A1: range(3), B0: range(1)},
        {A0: range(9, 13), B0: range(4, 5)},
        {A0: range(20, 21)},
    ]
    assert split_into_reads({}) == []


Pieces = st.lists(
    st.tuples(st.sampled_from([A0, A1, B0]), st.integers(0, 40), st.integers(1, 8)), max_size=12
)


@given(Pieces)
def test_every_offset_is_read_exactly_once(pieces: list[tuple[TopicPartition, int, int]]) -> None:
    parts = [part(partition, range(start, start + length)) for partition, start, length in pieces]
    wanted = {
        (partition, offset)
        for partition, start, length in pieces
        for offset in range(start, start + length)
    }
    read = [
        (partition, offset)
        for one in split_into_reads(offsets_by_partition(parts))
        for partition, its in one.items()
        for offset in its
    ]
    assert len(read) == len(wanted)
    assert set(read) == wanted


def test_partitions_and_offsets_are_told_by_topic_with_exclusive_ends() -> None:
    told = {
        name: json.loads(text)
        for name, text in offsets_json({A0: range(2, 7), B0: range(1), A1: range(3)}).items()
    }
    assert told == {
        "assign": {"a": [0, 1], "b": [0]},
        "startingOffsets": {"a": {"0": 2, "1": 0}, "b": {"0": 0}},
        "endingOffsets": {"a": {"0": 7, "1": 3}, "b": {"0": 1}},
    }


def test_spark_is_told_servers_and_headers_and_to_fail_when_records_are_gone() -> None:
    spark: Any = FakeSpark()
    settings = IncomingSettings(
        name="c", topics=("a",), group_id="g", client={"isolation_level": "read_committed"}
    )
    frame: Any = KafkaSource(settings, lambda: "kafka:9092")(
        spark, [part(A0, range(2), range(4, 6)), part(A1, range(2))]
    )
    assert frame.reads == [1, 2]
    assert [json.loads(one["assign"]) for one in spark.loaded] == [{"a": [0, 1]}, {"a": [0]}]
    for options in spark.loaded:
        assert options["kafka.bootstrap.servers"] == "kafka:9092"
        assert options["kafka.isolation.level"] == "read_committed"
        assert (options["includeHeaders"], options["failOnDataLoss"]) == ("true", "true")


def certificate(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----"


def test_renewed_certificates_are_used_and_while_they_are_away_the_last_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark: Any = FakeSpark()
    file = tmp_path / "ca.pem"
    client = {"security_protocol": "SSL", "ssl_cafile": str(file)}
    settings = IncomingSettings(name="c", topics=("a",), group_id="g", client=client)
    with pytest.raises(ConfigError, match="ssl_cafile"):
        KafkaSource(settings, lambda: "kafka:9092")
    file.write_text(certificate("b2xk"))
    source = KafkaSource(settings, lambda: "kafka:9092")
    source(spark, [part(A0, range(1))])
    file.write_text(certificate("bmV3"))
    source(spark, [part(A0, range(1))])
    assert caplog.text == ""
    file.unlink()
    source(spark, [part(A0, range(1))])
    used = [options["kafka.ssl.truststore.certificates"] for options in spark.loaded]
    assert used == [certificate("b2xk"), certificate("bmV3"), certificate("bmV3")]
    assert "channel 'c': ssl_cafile" in caplog.text


@pytest.mark.parametrize(
    "logger", ["py4j.clientserver", "py4j.java_gateway", "pyspark.sql.connect.logging"]
)
def test_what_pyspark_logs_about_a_secret_is_dropped(
    logger: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, logger=logger)
    log = logging.getLogger(logger)
    # As that of Connect is, once it was loaded, until it is asked for.
    monkeypatch.setattr(log, "disabled", False)
    for option in ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.password"):
        log.debug("Command to send: %s", f"c\no12\noption\ns{option}\nssecret\ne\n")
    log.debug("Command to send: %s", "c\no12\noption\nskafka.isolation.level\nsread_committed\ne\n")
    hide(["spark.my.password", "a\\b"])
    # A value without its name, as Java's answers have it.
    log.debug("Answer received: %s", "!ysa\\\\b")
    log.debug("Command to send: %s", "c\no1\nset\nsspark.my.password\nssecret\ne\n")
    assert "secret" not in caplog.text
    assert "!ys" not in caplog.text
    assert "read_committed" in caplog.text
