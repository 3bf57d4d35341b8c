"""Three nodes that are out of step: too few in sync, a leader that knows too little, no
controller.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.faults import letters
from tests.faults.cases import finish
from tests.faults.checker import Rules, check, report
from tests.faults.driver import Load, Parcel, create_topics, until
from tests.faults.history import Partition
from tests.faults.observer import read_records
from tests.faults.scenario import member, new_topic, playing
from tests.faults.wire import NODES, coordinator_of
from tests.harness.kafka import KafkaCluster
from tests.harness.separate import WithOwnController

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

# Its handlers fail when a record asks for it.
FAILING = "tests.faults.matrix_service"
EVERYWHERE = [NODES, (2, 3, 1), (3, 1, 2)] * 2


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """Three nodes that these tests may kill."""
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(three: KafkaCluster) -> KafkaCluster:
    """The same, all of them running."""
    for number, node in three.nodes.items():
        if node.pid is None:
            three.start_node(number)
    return three


def some_fail(id: str, number: int, tp: Partition) -> Parcel:
    do = "always" if number % 20 == 19 else "work"
    return Parcel(json.dumps({"id": id, "do": do}).encode())


async def topic_of(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """What the cluster says of each partition; asked again where a node is asked that is gone."""
    async with asyncio.timeout(30):
        while True:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            try:
                await admin.start()
                (described,) = await admin.describe_topics([topic])
                return sorted(described["partitions"], key=lambda one: int(one["partition"]))
            except KafkaError:
                await asyncio.sleep(0.2)
            finally:
                await admin.close()


async def test_with_too_few_replicas_in_sync_reading_goes_on_and_letters_wait(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Rows A8, H-1 of the faults."""
    topic = new_topic()
    dead = f"dead-{topic}"
    config = {"min.insync.replicas": "3", "message.timestamp.type": "LogAppendTime"}
    bootstrap = cluster.bootstrap_servers
    await create_topics(bootstrap, [NewTopic(dead, 1, 3, topic_configs=config)])
    channel = f'ordering = "unordered"\nfailure_strategy = "dead-letter-queue"\ndead_letter_queue.topic = "{dead}"'
    async with playing(
        bootstrap, tmp_path, topic=topic, replicas=EVERYWHERE, make=some_fail
    ) as scenario:
        life = member(
            scenario, "service", channel=channel, module=FAILING, session_ms=10_000
        ).start()
        async with scenario.load.flowing(150):
            await life.ready(60)
            await until(lambda: scenario.done() > 300, 30, "it works", life.tail)
            coordinator = await coordinator_of(bootstrap, topic)
            victim = next(node for node in NODES if node != coordinator)
            await asyncio.to_thread(cluster.kill, victim)
            async with asyncio.timeout(30):
                while [len(one["isr"]) for one in await topic_of(bootstrap, dead)] != [2]:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            await life.says(dead, 40)
            before = scenario.done()
            await until(lambda: scenario.done() > before + 300, 40, "reading goes on", life.tail)
            await life.says(dead, 5)
            stuck = dict(scenario.observer.latest)
            assert (await life.health("/health/live"))[0] == 200
            await asyncio.to_thread(cluster.start_node, victim)
            await life.probe_shows("/health/ready", 200, 60)
        await finish(scenario)
        origin = await read_records(bootstrap, scenario.partitions)
        written = letters.written_on(
            origin, [await read_records(bootstrap, [(dead, 0)])], timed=True
        )
        evidence = replace(await scenario.evidence(), letters=written)
    assert report(check(evidence, Rules())) == ""
    assert len(written) == sum(
        b'"always"' in (one.value or b"") for log in origin.values() for one in log.values()
    )
    assert any(at > stuck[tp] for tp, at in scenario.observer.latest.items())


async def test_a_log_that_an_unclean_election_has_cut_off_is_noticed_counted_and_read_on(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Row A9 of the faults."""
    topic, bootstrap = new_topic(), cluster.bootstrap_servers
    coordinator = await coordinator_of(bootstrap, topic)
    first, second = (node for node in NODES if node != coordinator)
    async with playing(bootstrap, tmp_path, 1, topic=topic, replicas=[(first, second)]) as scenario:
        (tp,) = scenario.partitions
        await asyncio.to_thread(set_config, cluster, topic, "min.insync.replicas=1")
        life = member(scenario, "service", session_ms=10_000).start()
        await life.ready(60)
        async with scenario.load.flowing(100):
            await until(lambda: scenario.done() > 200, 30, "it works", life.tail)
        await until(scenario.all_is_committed, 20, "all is committed")
        # From here on only the first one has what is written.
        await asyncio.to_thread(cluster.kill, second)
        kept = scenario.observer.latest[tp]
        async with scenario.load.flowing(100):
            await until(lambda: scenario.done() > kept + 200, 60, "it works", life.tail)
        await until(scenario.all_is_committed, 40, "all is committed", life.tail)
        committed = scenario.observer.latest[tp]
        await asyncio.to_thread(cluster.kill, first)
        await asyncio.to_thread(cluster.start_node, second)
        await asyncio.to_thread(elect_unclean, cluster, topic)
        (now,) = await topic_of(bootstrap, topic)
        assert now["leader"] == second

        later = Load(bootstrap, scenario.partitions)
        # So that no id is told twice.
        later._numbers = itertools.count(100_000)
        async with later, later.flowing(50):
            await until(lambda: len(later.sent) > 100, 30, "the cut log is written to")
        assert min(offset for _, offset in later.sent) == kept < committed, "nothing was cut off"

        def all_is_handled() -> bool:
            done = {(one.tp, one.offset, one.id) for one in life.events if one.kind == "end"}
            return all((*place, id) in done for place, id in later.sent.items())

        await until(all_is_handled, 60, "what was written to the cut log is handled", life.tail)
        end = max(offset for _, offset in later.sent) + 1
        await until(lambda: scenario.observer.latest[tp] == end, 40, "it is committed", life.tail)
        assert resets(await life.metrics()) >= 1
        assert f"{topic}-0" in life.log.read_text()
        await life.probe_shows("/health/ready", 200, 20)
        await asyncio.to_thread(cluster.start_node, first)


def set_config(cluster: KafkaCluster, topic: str, setting: str) -> None:
    where = ("--entity-type", "topics", "--entity-name", topic)
    cluster.tool("org.apache.kafka.tools.ConfigCommand", "--alter", "--add-config", setting, *where)


def elect_unclean(cluster: KafkaCluster, topic: str) -> None:
    what = ("--election-type", "UNCLEAN", "--topic", topic, "--partition", "0")
    cluster.tool("org.apache.kafka.tools.LeaderElectionCommand", *what)


def resets(metrics: str) -> float:
    """How many partitions were set somewhere by policy."""
    name = "reactive_kafka_offset_resets_total{"
    return sum(
        float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(name)
    )


async def test_without_a_controller_reading_and_committing_go_on_and_questions_end(
    tmp_path: Path,
) -> None:
    """Row A10 of the faults."""
    with WithOwnController() as cluster:
        topic, bootstrap = new_topic(), cluster.bootstrap_servers
        await coordinator_of(bootstrap, topic)
        dead = f"dead-{topic}"
        channel = f'ordering = "unordered"\nfailure_strategy = "dead-letter-queue"\ndead_letter_queue.topic = "{dead}"'
        async with playing(bootstrap, tmp_path, topic=topic) as scenario:
            life = member(scenario, "service", channel=channel, module=FAILING).start()
            async with scenario.load.flowing(150):
                await life.ready(60)
                await until(lambda: scenario.done() > 300, 30, "it works", life.tail)
                cluster.stop_controller()
                gone_at, before = time.time(), scenario.observer.latest.copy()
                answered = []
                while time.time() < gone_at + 15:
                    began = time.monotonic()
                    status, _ = await life.health("/health/ready")
                    answered.append((status, time.monotonic() - began))
                    await asyncio.sleep(0.2)
                assert {status for status, _ in answered} == {200}
                assert max(took for _, took in answered) < 2
                done = [one for one in life.events if one.kind == "end" and one.t > gone_at]
                assert len(done) > 10 * 150
                assert all(scenario.observer.latest[tp] > at for tp, at in before.items()), (
                    "commits do not go on"
                )
                late = member(
                    scenario, "late", channel=channel.replace(dead, f"late-{topic}"), module=FAILING
                )
                await late.start().probe_shows("/health/started", 200, 40)
                for tp in scenario.partitions:
                    await scenario.load.send(tp, "always")
                await late.life.says(f"late-{topic}", 40)
                for one in (life, late.life):
                    assert (await one.health("/health/live"))[0] == 200
                cluster.start_controller()
                await late.life.probe_shows("/health/ready", 200, 60)
            await finish(scenario)
            origin = await read_records(bootstrap, scenario.partitions)
            dead_ones = [
                (name, one["partition"])
                for name in (dead, f"late-{topic}")
                for one in await topic_of(bootstrap, name)
            ]
            written = letters.written_on(
                origin, [await read_records(bootstrap, dead_ones)], timed=False
            )
            evidence = replace(await scenario.evidence(), letters=written)
    assert report(check(evidence, Rules())) == ""
    assert len(written) == len(scenario.partitions)
