"""``[topics.X]``: how a topic should be."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.tables import TopicSettings
from reactive_kafka.errors import ConfigError


def topics(table: object, environ: dict[str, str] | None = None) -> dict[str, TopicSettings]:
    tables: Any = {"topics": table}
    return dict(read_settings(tables, environ=environ or {}).checked().topics)


def test_a_topic_without_keys_is_only_to_exist() -> None:
    assert topics({"orders.v1": {}}) == {"orders.v1": TopicSettings(name="orders.v1")}


def test_configs_have_kafkas_names_and_text_as_values() -> None:
    written = {
        "retention": {"ms": 7},
        "cleanup.policy": ["compact", "delete"],
        "min-insync-replicas": 2,
        "preallocate": True,
        "min_cleanable_dirty_ratio": 0.5,
        "message.timestamp.type": "CreateTime",
    }
    found = topics({"orders": {"partitions": 3, "replication-factor": 2, "config": written}})
    assert found["orders"] == TopicSettings(
        name="orders",
        partitions=3,
        replication_factor=2,
        config={
            "retention.ms": "7",
            "cleanup.policy": "compact,delete",
            "min.insync.replicas": "2",
            "preallocate": "true",
            "min.cleanable.dirty.ratio": "0.5",
            "message.timestamp.type": "CreateTime",
        },
    )


def test_the_environment_overrides_a_key_and_a_config() -> None:
    variables = {
        "REACTIVE_KAFKA__TOPICS__ORDERS_V1__PARTITIONS": "9",
        "REACTIVE_KAFKA__TOPICS__ORDERS_V1__CONFIG__RETENTION_MS": "60000",
    }
    found = topics({"Orders.v1": {"partitions": 3, "config": {"retention.ms": 1}}}, variables)
    assert found["Orders.v1"].partitions == 9
    assert found["Orders.v1"].config == {"retention.ms": "60000"}


def test_the_dump_has_them() -> None:
    found = topics({"orders": {"partitions": 3, "config": {"retention.ms": 1}}})
    table = {"partitions": 3, "create": False, "config": {"retention.ms": "1"}}
    tables: Any = {"topics": {"orders": table}}
    assert dump(read_settings(tables, environ={}).checked())["topics"] == tables["topics"]
    assert topics(tables["topics"]) == found


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"no/topic": {}}, "[topics.no/topic]: expected the name of a topic"),
        ({"orders": {"partitions": 0}}, "[topics.orders] partitions = 0: expected a whole number"),
        ({"orders": {"partitions": 2**31}}, "expected a whole number"),
        ({"orders": {"replication_factor": 2**15}}, "from 1 to 32767"),
        ({"orders": {"config": 3}}, "expected a table: [topics.X.config]"),
        ({"orders": {"config": {"retention.ms": " "}}}, "expected a string, a number"),
        ({"orders": {"config": {"cleanup.policy": []}}}, "expected a string, a number"),
        ({"orders": {"partition": 3}}, "did you mean 'partitions'?"),
        ({"orders": {"configs": {"a.b": 1}}}, "unknown key"),
        (3, "expected a table: [topics.X]"),
    ],
)
def test_anything_else_is_refused_with_its_place(table: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topics(table)
    assert said in str(caught.value)


def test_a_topic_that_only_a_variable_names_is_refused_if_a_file_names_others() -> None:
    with pytest.raises(ConfigError, match=r"no such topic \(there are 'orders'\); did you mean"):
        topics({"orders": {}}, {"REACTIVE_KAFKA__TOPICS__ORDER__PARTITIONS": "9"})
