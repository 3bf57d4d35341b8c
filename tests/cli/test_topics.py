"""``topics``: what a plan does and refuses, and that applying it leaves nothing to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.cli.topics.topic_plan import (
    AddPartitions,
    CreateTopic,
    ExistingTopic,
    SetConfig,
    TopicPlan,
    plan_topics,
)
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import cli_on, make_broker
from tests.cli.process import Ended
from tests.config.values import topic_settings

NAMES = ("retention.ms", "cleanup.policy", "min.insync.replicas")
configs = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2", "a,b"]))
counts = st.integers(1, 5)


@st.composite
def declared_topics(draw: st.DrawFn) -> list[Any]:
    names = draw(st.lists(st.sampled_from("abc"), unique=True))
    return [
        topic_settings(
            name=name,
            partitions=draw(st.none() | counts),
            replication_factor=draw(st.none() | counts),
            config=draw(configs),
        )
        for name in names
    ]


known_configs = st.fixed_dictionaries(
    {name: st.sampled_from(["1", "a, b", None]) for name in NAMES}
)
existing_topics = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        ExistingTopic,
        partitions=counts,
        replication_factor=st.none() | counts,
        config=known_configs,
    ),
)


def after(plan: TopicPlan, existing: Mapping[str, ExistingTopic]) -> dict[str, ExistingTopic]:
    """The topics once the steps are done."""
    topics = dict(existing)
    for step in plan.steps:
        match step:
            case CreateTopic():
                assert step.topic not in topics
                config = dict.fromkeys(NAMES) | dict(step.config)
                topics[step.topic] = ExistingTopic(step.partitions, step.replication_factor, config)
            case AddPartitions():
                found = topics[step.topic]
                assert found.partitions == step.before < step.after
                topics[step.topic] = ExistingTopic(
                    step.after, found.replication_factor, found.config
                )
            case SetConfig():
                found = topics[step.topic]
                config = dict(found.config or {}) | dict(step.after)
                topics[step.topic] = ExistingTopic(
                    found.partitions, found.replication_factor, config
                )
    return topics


@given(declared_topics(), existing_topics)
def test_a_plan_takes_nothing_away_and_is_done_after_it_was_applied(
    declared: list[Any], existing: dict[str, ExistingTopic]
) -> None:
    plan = plan_topics(declared, existing)
    topics = after(plan, existing)
    assert existing.keys() <= topics.keys()
    for name, before in existing.items():
        assert topics[name].partitions >= before.partitions
        assert topics[name].replication_factor == before.replication_factor
    again = plan_topics(declared, topics)
    assert again.steps == ()
    assert again.refused == plan.refused


@given(declared_topics(), existing_topics)
def test_what_is_not_refused_is_as_declared_afterwards(
    declared: list[Any], existing: dict[str, ExistingTopic]
) -> None:
    plan = plan_topics(declared, existing)
    topics = after(plan, existing)
    for topic in declared:
        found = topics[topic.name]
        is_refused = any(line.startswith(f"{topic.name} has") for line in plan.refused)
        has_partitions = topic.partitions in (None, found.partitions)
        has_replicas = topic.replication_factor in (None, found.replication_factor)
        if found.replication_factor is None:
            has_replicas = True
        assert is_refused != (has_partitions and has_replicas)
        for name, value in topic.config.items():
            assert (found.config or {})[name] in (value, value.replace(",", ", "))


def test_a_config_that_the_cluster_does_not_know_is_refused() -> None:
    topic = topic_settings(name="orders", config={"retention": "1"})
    known = ExistingTopic(1, 1, {})
    assert plan_topics([topic], {"orders": known}) == TopicPlan(
        (), ("orders: the cluster knows no topic config retention",)
    )
    [refused] = plan_topics([topic], {"orders": ExistingTopic(1, 1)}).refused
    assert "DESCRIBE_CONFIGS" in refused


# -- the commands


class Shop:
    """A configuration with topics, and a broker."""

    def __init__(self, folder: Path) -> None:
        self.broker = make_broker(2, "orders", "wide")
        self.broker.create_topic("orders", 2, {"retention.ms": "1000", "preallocate": "true"})
        self.file = folder / "config.json"
        self.declare(
            orders={"partitions": 4, "config": {"retention.ms": 2000}},
            new={"partitions": 3, "config": {"cleanup.policy": "compact"}},
        )

    def declare(self, **topics: Any) -> None:
        channels = {
            "kafka": {"bootstrap_servers": "memory:1", "group_id": "g"},
            "incoming": {"orders": {"failure_strategy": "delayed-retry-topic"}},
            "outgoing": {"bills": {"topic": "new"}},
        }
        self.file.write_text(json.dumps({**channels, "topics": topics}))

    def run(self, *arguments: str) -> Ended:
        return cli_on(self.broker, "topics", *arguments, "--config", str(self.file), servers=False)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


STEPS = [
    "grow orders: 2 to 4 partitions; new records of a key may go to another partition",
    "configure orders: retention.ms = 2000 (was 1000)",
    "create new: 3 partitions, cleanup.policy = compact",
]


def test_plan_shows_what_apply_would_do_and_changes_nothing(shop: Shop) -> None:
    ended = shop.run("plan")
    assert (ended.code, ended.out.splitlines()) == (0, STEPS)
    assert shop.broker.topics() == {"orders": 2, "wide": 2}
    found = json.loads(shop.run("plan", "--json").out)
    assert [step["do"] for step in found["steps"]] == ["grow", "configure", "create"]
    assert found["steps"][0] == {"do": "grow", "topic": "orders", "before": 2, "after": 4}


def test_apply_creates_grows_and_configures_and_leaves_other_configs_alone(shop: Shop) -> None:
    ended = shop.run("apply", "--yes")
    assert (ended.code, ended.out.splitlines()) == (0, [*STEPS, "made 3 changes"])
    assert shop.broker.topics() == {"orders": 4, "wide": 2, "new": 3}
    again = shop.run("apply", "--yes")
    assert (again.code, again.out) == (0, "2 topics: everything is as declared\n")
    shop.declare(orders={"config": {"retention.ms": "2000", "preallocate": True}})
    assert shop.run("plan").out == "1 topic: everything is as declared\n"


def test_apply_tells_a_program_what_it_did(shop: Shop) -> None:
    ended = shop.run("apply", "--yes", "--json")
    assert ended.code == 0
    assert [step["do"] for step in json.loads(ended.out)["steps"]] == [
        "grow",
        "configure",
        "create",
    ]
    assert "made 3 changes" in ended.err


def test_what_would_shrink_is_named_and_the_rest_is_done(shop: Shop) -> None:
    shop.declare(wide={"partitions": 1}, orders={"replication_factor": 3}, new={})
    refused = [
        "refused: wide has 2 partitions, and 1 are declared: Kafka cannot take partitions away",
        "refused: orders has 1 replica of each partition, and 3 are declared: move replicas with "
        "Kafka's kafka-reassign-partitions.sh",
    ]
    plan = shop.run("plan")
    assert (plan.code, plan.out.splitlines()) == (0, ["create new: 1 partition", *refused])
    ended = shop.run("apply", "--yes")
    assert (ended.code, ended.out.splitlines()[-1]) == (1, "made 1 change")
    assert "2 declarations cannot be met" in ended.err
    assert shop.broker.topics() == {"orders": 2, "wide": 2, "new": 1}


def test_apply_asks_first(shop: Shop) -> None:
    ended = shop.run("apply")
    assert ended.code == 2
    assert "use --yes to go ahead without it, or topics plan to change nothing" in ended.err
    assert shop.broker.topics() == {"orders": 2, "wide": 2}


def test_a_step_that_fails_says_how_many_were_made_before(shop: Shop) -> None:
    shop.broker.fail_next("set_topic_config", FatalBrokerError("no right"))
    ended = shop.run("apply", "--yes")
    assert ended.code == 1
    assert "configure orders: retention.ms = 2000 (was 1000): no right" in ended.err
    assert "1 change made before that" in ended.err
    assert shop.broker.topics()["orders"] == 4


def test_a_configuration_without_topics_says_how_to_declare_them(shop: Shop) -> None:
    shop.declare()
    for command in (["plan"], ["apply", "--yes"]):
        ended = shop.run(*command)
        assert ended.code == 0
        assert "declares no topics: write [topics.NAME]" in ended.out


def test_list_shows_the_channels_of_each_topic_and_what_is_missing(shop: Shop) -> None:
    ended = shop.run("list")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "topic                     partitions  replicas  channels",
        "dead-letter-topic-orders           -         -  dead letters of orders",
        "new                                -         -  bills writes",
        "orders                             2         1  orders reads",
        "orders_retry_10000                 -         -  retries of orders",
        "orders_retry_20000                 -         -  retries of orders",
        "orders_retry_50000                 -         -  retries of orders",
        "wide                               2         1",
    ]
    rows = json.loads(shop.run("list", "--json").out)
    assert rows[2] == {
        "topic": "orders",
        "partitions": 2,
        "replication_factor": 1,
        "is_declared": True,
        "used_by": ["orders reads"],
    }


def test_list_needs_only_the_brokers() -> None:
    ended = cli_on(make_broker(2, "orders"), "topics", "list", "--json")
    assert [row["topic"] for row in json.loads(ended.out)] == ["orders"]


def test_an_application_brings_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "topics_app.py").write_text(
        "from reactive_kafka import App\napp = App({'topics': {'orders': {'partitions': 2}}})\n"
    )
    broker = MemoryBroker(auto_create=False)
    arguments = ("topics", "plan", "topics_app:app", "--app-dir", str(tmp_path))
    ended = cli_on(broker, *arguments, servers=False)
    assert (ended.code, ended.out) == (0, "create orders: 2 partitions\n")
