"""``groups``: all groups, and the members of one; on an in-memory broker and on Kafka."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest

from reactive_kafka import FatalBrokerError
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import cli_on, commit, fill, make_broker, member_of
from tests.cli.test_topics_on_kafka import run_command


@pytest.fixture
def broker() -> MemoryBroker:
    broker = make_broker(2, "orders", "clicks")
    fill(broker, "orders", (4, 2))
    commit(broker, "billing", "orders", 1, 2)
    return broker


def test_no_groups_are_said_to_be_none() -> None:
    broker = make_broker(1, "orders")
    assert cli_on(broker, "groups").out == "there are no groups\n"
    assert json.loads(cli_on(broker, "groups", "--json").out) == []


def test_all_groups_are_listed_with_their_lag(broker: MemoryBroker) -> None:
    with member_of(broker, "clicks", "clicks"):
        ended = cli_on(broker, "groups")
        assert ended.code == 0, ended.err
        assert ended.out.splitlines() == [
            "group    type     state   members  lag  topics",
            "billing  classic  Empty         0    3  orders",
            "clicks   classic  Stable        1    -  clicks",
        ]
        assert cli_on(broker, "groups", "list").out == ended.out
        [billing, clicks] = json.loads(cli_on(broker, "groups", "--json").out)
    assert billing == {
        "group": "billing",
        "type": "classic",
        "protocol": "",
        "state": "Empty",
        "members": [],
        "topics": ["orders"],
        "lag": 3,
    }
    assert clicks["members"][0]["partitions"] == [
        {"topic": "clicks", "partition": 0},
        {"topic": "clicks", "partition": 1},
    ]


@pytest.mark.parametrize("call", ["describe_group", "committed"])
def test_a_group_that_may_not_be_read_keeps_no_other_from_being_shown(
    broker: MemoryBroker, call: Any
) -> None:
    commit(broker, "audit", "clicks", 0)
    for form in ((), ("--json",)):
        broker.fail_next(call, FatalBrokerError("GroupAuthorizationFailed"))
        ended = cli_on(broker, "groups", *form)
        assert ended.code == 1
        assert "billing" in ended.out
        assert "audit" not in ended.out
        assert "group audit: GroupAuthorizationFailed" in ended.err
    broker.fail_next(call, FatalBrokerError("GroupAuthorizationFailed"))
    shown = cli_on(broker, "groups", "show", "audit")
    assert (shown.code, shown.out) == (1, "")
    assert "group audit: GroupAuthorizationFailed" in shown.err


def test_a_group_is_shown_with_the_partitions_of_its_members(broker: MemoryBroker) -> None:
    with member_of(broker, "billing", "clicks"):
        lines = cli_on(broker, "groups", "show", "billing").out.splitlines()
    assert lines[0] == "group billing: classic, Stable, 1 member"
    assert lines[1].startswith("  worker at memory (")
    assert lines[1].endswith("): clicks-0, clicks-1")
    assert lines[2:] == ["  no member has orders-0, orders-1", "3 records behind, in 2 partitions"]


def test_an_unknown_group_is_an_error(broker: MemoryBroker) -> None:
    ended = cli_on(broker, "groups", "show", "bilking")
    assert ended.code == 1
    assert "unknown group 'bilking'; the cluster has billing" in ended.err


def test_a_position_in_a_topic_that_was_deleted_does_not_count(broker: MemoryBroker) -> None:
    commit(broker, "billing", "clicks", 0)
    broker.delete_topic("clicks")
    [row] = json.loads(cli_on(broker, "groups", "--json").out)
    assert row["lag"] == 3


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_tells_the_members_of_a_group_and_their_partitions(kafka: str, protocol: str) -> None:
    name = f"orders-{uuid4().hex[:8]}"
    where = ("--bootstrap-servers", kafka)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics([confluent_kafka.admin.NewTopic(name, 2, 1)]).values():
        created.result(30)
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": name,
            "group.protocol": protocol,
            "client.id": "worker",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([name])
        for _ in range(600):
            consumer.poll(0.1)
            if len(consumer.assignment()) == 2:
                break
        shown = json.loads(run_command("groups", "show", name, "--json", *where).out)
        assert (shown["type"], shown["state"], shown["topics"]) == (protocol, "Stable", [name])
        [member] = shown["members"]
        assert member["client_id"] == "worker"
        assert [each["partition"] for each in member["partitions"]] == [0, 1]
        listed = json.loads(run_command("groups", "--json", *where).out)
        assert shown in listed
        positions = json.loads(
            run_command("offsets", "show", name, "--topic", name, "--json", *where).out
        )
        assert (positions["state"], len(positions["members"])) == ("Stable", 1)
        reset = ("offsets", "reset", name, "--topic", name, "--to", "latest", "--yes")
        refused = run_command(*reset, *where)
        assert refused.code == 1
        assert f"group '{name}' has members, stop them first: worker at" in refused.err
    finally:
        consumer.close()
