"""``lag`` asks and changes nothing, on the embedded broker and on a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.cli.cluster_access import ClusterAccess
from reactive_kafka.cli.commands import commands
from reactive_kafka.cli.lag_command import LagQuery, Row, notes, table
from reactive_kafka.subscription import Topics
from reactive_kafka.testing import MemoryBroker
from tests.broker.members import Member
from tests.cli import inside
from tests.cli.inside import cli_in
from tests.cli.process import cli
from tests.harness.kafka import EmbeddedBroker, clients_of


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        yield request.getfixturevalue("kafka")
        return
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def group(servers: str) -> str:
    """A group, and a topic of the same name: 5 records in partition 0, of which 3 are committed, 2
    in partition 1.
    """
    name = f"lag-{uuid4().hex[:8]}"
    await write(servers, name, {0: 5, 1: 2})
    await commit(servers, name, {TopicPartition(name, 0): Committed(3)})
    return name


async def write(servers: str, topic: str, counts: Mapping[int, int]) -> None:
    producer = clients_of(servers).producer(name="test", properties={})
    inspector = clients_of(servers).inspector(properties={})
    await producer.start()
    await inspector.start()
    try:
        # The embedded broker makes topics by itself.
        if (await inspector.describe_group("nobody")).state is not None:
            await inspector.create_topic(topic, 4)
        for partition, count in counts.items():
            for number in range(count):
                await (await producer.send(topic, b"%d" % number, partition=partition))
    finally:
        await inspector.stop()
        await producer.stop()


async def commit(servers: str, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
    async with member_of(servers, group) as member:
        await member.consumer.commit(positions, member.generation)


@asynccontextmanager
async def member_of(servers: str, group: str) -> AsyncIterator[Member]:
    """A member that has all partitions of the topic called as its group."""
    # The embedded broker lets nobody into a group that a member has left for as long as a session
    # lasts.
    short = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    consumer = clients_of(servers).consumer(
        name="one", subscription=Topics((group,)), group_id=group, properties=short
    )
    member = Member(consumer)
    try:
        await consumer.start(member)
        await member.until_assigned(4)
        yield member
    finally:
        await consumer.stop()


def test_it_shows_each_partition_of_a_group_and_what_is_not_committed(
    servers: str, group: str, tmp_path: Path
) -> None:
    ended = cli(
        "lag",
        "--bootstrap-servers",
        servers,
        "--group",
        group,
        "--topic",
        group,
        "--json",
        cwd=tmp_path,
    )
    assert ended.code == 0, ended.err
    rows = [
        (row["partition"], row["committed"], row["log_end"], row["lag"])
        for row in json.loads(ended.out)
    ]
    assert rows == [(0, 3, 5, 2), (1, None, 2, None), (2, None, 0, None), (3, None, 0, None)]


def test_without_a_topic_it_shows_the_topics_where_the_group_has_committed(
    servers: str, group: str, tmp_path: Path
) -> None:
    ended = cli("lag", "--bootstrap-servers", servers, "--group", group, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert [line.split() for line in ended.out.splitlines()] == [
        ["group", "topic", "partition", "committed", "log", "end", "lag"],
        [group, group, "0", "3", "5", "2"],
        [group, group, "1", "-", "2", "-"],
        [group, group, "2", "-", "0", "-"],
        [group, group, "3", "-", "0", "-"],
        ["2", "records", "behind,", "in", "4", "partitions"],
    ]


def test_a_configuration_names_groups_and_topics(servers: str, group: str, tmp_path: Path) -> None:
    (tmp_path / "reactive-kafka.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{servers}"\n[incoming.orders]\ntopic = "{group}"\ngroup_id = "{group}"\n'
    )
    ended = cli("lag", "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert next((row["topic"], row["lag"]) for row in json.loads(ended.out)) == (group, 2)


def test_an_unknown_group_exits_with_1(servers: str, group: str, tmp_path: Path) -> None:
    ended = cli(
        "lag", "--bootstrap-servers", servers, "--group", "nobody", "--topic", group, cwd=tmp_path
    )
    assert (ended.code, ended.out) == (1, "")
    assert "unknown group 'nobody': it has no members and has committed nothing" in ended.err
    assert "Traceback" not in ended.err


async def test_an_unknown_topic_exits_with_1_and_is_not_created(
    servers: str, group: str, tmp_path: Path
) -> None:
    arguments = (
        "lag",
        "--bootstrap-servers",
        servers,
        "--group",
        group,
        "--topic",
        "no-such-topic",
    )
    ended = await asyncio.to_thread(cli, *arguments, cwd=tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert "unknown topic no-such-topic" in ended.err
    inspector = clients_of(servers).inspector(properties={})
    await inspector.start()
    assert "no-such-topic" not in await inspector.topics()
    await inspector.stop()


def test_a_broker_that_the_caller_brings_is_asked_too() -> None:
    broker = inside.make_broker(1, "orders")
    inside.fill(broker, "orders", [5])
    inside.commit(broker, "billing", "orders", 3)
    ended = inside.cli_on(broker, "lag", "--group", "billing", "--json")
    assert [(row["committed"], row["lag"]) for row in json.loads(ended.out)] == [(3, 2)]


RETRIES = "kafka-delayed-retry-topic-billing"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), [("billing", "orders", 3, 2), (RETRIES, "orders_retry_10000", 1, 3)]),
        (("--group", RETRIES), [(RETRIES, "orders_retry_10000", 1, 3)]),
        (("--group", "billing"), [("billing", "orders", 3, 2)]),
        (("--topic", "orders_retry_10000"), [(RETRIES, "orders_retry_10000", 1, 3)]),
        (("--topic", "orders"), [("billing", "orders", 3, 2)]),
    ],
)
def test_delayed_retries_are_a_group_of_their_own(
    arguments: tuple[str, ...], shown: list[tuple[str, str, int, int]], tmp_path: Path
) -> None:
    broker = with_retries(tmp_path)
    broker.create_topic("orders_retry_10000", 1)
    inside.fill(broker, "orders_retry_10000", [4])
    inside.commit(broker, RETRIES, "orders_retry_10000", 1)
    ended = inside.cli_on(
        broker, "lag", "--config", str(tmp_path / "shop.toml"), *arguments, "--json", servers=False
    )
    rows = [
        (row["group"], row["topic"], row["committed"], row["lag"]) for row in json.loads(ended.out)
    ]
    assert (ended.code, ended.err, rows) == (0, "", shown)


def test_delayed_retries_that_never_were_are_left_out(tmp_path: Path) -> None:
    ended = inside.cli_on(
        with_retries(tmp_path),
        "lag",
        "--config",
        str(tmp_path / "shop.toml"),
        "--json",
        servers=False,
    )
    assert (ended.code, ended.err) == (0, "")
    assert [row["group"] for row in json.loads(ended.out)] == ["billing"]


def with_retries(folder: Path) -> MemoryBroker:
    """A topic that is 2 records behind; shop.toml has a channel of it with two retry topics, of
    which none exists.
    """
    (folder / "shop.toml").write_text(
        '[kafka]\nbootstrap_servers = "memory:1"\n[incoming.orders]\ngroup_id = "billing"\n'
        'failure_strategy = "delayed-retry-topic"\n'
        'delayed_retry.topics = ["orders_retry_10000", "orders_retry_60000"]\n'
    )
    broker = inside.make_broker(1, "orders")
    inside.fill(broker, "orders", [5])
    inside.commit(broker, "billing", "orders", 3)
    return broker


def two_services(folder: Path, other: str) -> MemoryBroker:
    """The group billing is 2 records behind; shop.toml has a channel of it, and behind it *other*,
    which cannot be shown.
    """
    (folder / "shop.toml").write_text(
        f'[kafka]\nbootstrap_servers = "memory:1"\n{other}\n'
        '[incoming.orders]\ngroup_id = "billing"\n'
    )
    broker = inside.make_broker(1, "orders")
    inside.fill(broker, "orders", [5])
    inside.commit(broker, "billing", "orders", 3)
    return broker


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            '[incoming.audit]\ntopic = "orders"\ngroup_id = "audit"',
            "unknown group 'audit': it has no members and has committed nothing",
        ),
        ('[incoming.audit]\ntopic = "clicks"\ngroup_id = "audit"', "unknown topic clicks"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_group_that_does_not_exist_yet_keeps_no_other_from_being_shown(
    other: str, said: str, as_json: bool, tmp_path: Path
) -> None:
    broker = two_services(tmp_path, other)
    arguments = ["lag", "--config", str(tmp_path / "shop.toml"), *(["--json"] if as_json else [])]
    ended = inside.cli_on(broker, *arguments, servers=False)
    assert ended.code == 1
    assert [line for line in ended.err.splitlines() if said in line] == ended.err.splitlines()
    if as_json:
        assert [(row["group"], row["lag"]) for row in json.loads(ended.out)] == [("billing", 2)]
    else:
        assert ended.out.splitlines()[1].split() == ["billing", "orders", "0", "3", "5", "2"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_cluster_that_is_away_keeps_no_other_from_being_shown(
    as_json: bool, tmp_path: Path
) -> None:
    """It is asked once, however many groups are there."""
    elsewhere = 'topic = "orders"\nbootstrap_servers = "memory:2"\n'
    broker = two_services(
        tmp_path,
        f'[incoming.audit]\ngroup_id = "audit"\n{elsewhere}'
        f'[incoming.copy]\ngroup_id = "copy"\n{elsewhere}',
    )
    away = inside.make_broker(1, "orders")
    away.down = True
    brokers = {"memory:1": broker, "memory:2": away}
    asked: list[str] = []

    def connector(servers: str) -> Any:
        asked.append(servers)
        return brokers[servers].connector()

    arguments = ["lag", "--config", str(tmp_path / "shop.toml"), *(["--json"] if as_json else [])]
    done = CliRunner().invoke(commands, arguments, obj=connector)
    assert done.exit_code == 1
    assert "billing" in done.stdout
    assert done.stderr == "Error: the in-memory broker is down\n"
    assert asked == ["memory:2", "memory:1"]


async def test_a_running_member_is_not_disturbed(servers: str, group: str, tmp_path: Path) -> None:
    async with member_of(servers, group) as member:
        arguments = ("lag", "--bootstrap-servers", servers, "--group", group)
        ended = await asyncio.to_thread(cli, *arguments, cwd=tmp_path)
        assert ended.code == 0, ended.err
        generation = member.generation
        # Still its member.
        await member.consumer.commit({TopicPartition(group, 0): Committed(4)}, generation)


def test_a_broker_that_is_away_exits_with_1_and_a_short_text(tmp_path: Path) -> None:
    ended = cli_in(tmp_path, "lag", "--bootstrap-servers", "127.0.0.1:1", "--group", "g")
    assert ended.code == 1
    assert "127.0.0.1:1" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--bootstrap-servers", "localhost:9092"), "--bootstrap-servers needs --group"),
        (
            ("--bootstrap-servers", "x:1", "--group", "g", "--config", "c.toml"),
            "exclude each other",
        ),
        ((), "there is no configuration"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("")
    ended = cli_in(tmp_path, "lag", *arguments)
    assert ended.code == 2
    assert text in ended.err


def test_a_group_that_no_channel_has_exits_with_1_and_names_those_there(tmp_path: Path) -> None:
    (tmp_path / "reactive-kafka.toml").write_text('[incoming.orders]\ngroup_id = "billing"\n')
    ended = cli_in(tmp_path, "lag", "--group", "biling")
    assert ended.code == 1
    assert "has group biling; there are: orders: group billing, topic orders" in ended.err


def test_an_embedded_broker_cannot_be_asked_from_outside(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[kafka]\nbootstrap_servers = "embedded"\n[incoming.orders]\ngroup_id = "g"\n'
    )
    ended = cli_in(tmp_path, "lag", "--config", "c.toml")
    assert ended.code == 1
    assert "only the process of the application can reach that broker" in ended.err


def test_the_table_sums_up_and_aligns() -> None:
    rows = [Row("g", "orders", 0, 142, 150, 8), Row("g", "orders", 10, None, 7, None)]
    assert table(rows) == [
        "group  topic   partition  committed  log end  lag",
        "g      orders          0        142      150    8",
        "g      orders         10          -        7    -",
        "8 records behind, in 2 partitions",
    ]


def test_positions_in_a_store_and_none_at_all_are_told() -> None:
    cluster = ClusterAccess("b:1", {}, connect=clients_of)
    stored = LagQuery("billing", ("orders",), cluster, in_store_of="orders")
    plain = LagQuery("audit", ("orders",), cluster)
    row = Row("billing", "orders", 0, 142, 150, 8)
    assert notes([plain], [row._replace(group="audit")]) == []
    assert notes([stored, plain], [row]) == [
        "channel orders keeps its positions in a checkpoint store: these are Kafka's, which are older; "
        "reactive-kafka offsets show billing reads the store",
        "group audit has committed nothing to Kafka",
    ]


def test_a_channel_whose_pattern_does_not_fit_a_topic_is_not_asked_for_it(tmp_path: Path) -> None:
    config = tmp_path / "shop.toml"
    config.write_text('[incoming.orders]\ngroup_id = "billing"\npattern = "orders-.*"\n')
    ended = cli_in(tmp_path, "lag", "--config", str(config), "--topic", "clicks")
    assert ended.code == 1
    assert "has topic clicks; there are: orders: group billing, pattern orders-.*" in ended.err
