"""The command line inside the test's process, on an in-memory broker: milliseconds, where a process
takes a second.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path

from click.testing import CliRunner

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.cli.commands import commands
from reactive_kafka.subscription import Topics
from reactive_kafka.testing import MemoryBroker
from tests.broker.members import Member
from tests.cli.process import Ended, environment


def cli_on(
    broker: MemoryBroker, *arguments: str, servers: bool = True, stdin: bytes | None = None
) -> Ended:
    """Run a command to its end; nobody sits at a terminal.

    Args:
        servers: Name the brokers; else the configuration does.
        stdin: What the command reads.
    """
    where = ("--bootstrap-servers", "memory:1") if servers else ()
    done = CliRunner().invoke(
        commands, [*arguments, *where], obj=lambda _: broker.connector(), input=stdin
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)


def cli_in(cwd: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run a command to its end as a user does in a folder.

    For commands that start nothing. What they import from the user's folders is forgotten afterwards.
    """
    with _as_user_in(cwd, env):
        done = CliRunner().invoke(commands, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)


@contextmanager
def _as_user_in(cwd: Path, env: Mapping[str, str] | None) -> Iterator[None]:
    """The folder, the environment and the search path of a process that a user starts."""
    modules, path, environ = set(sys.modules), sys.path[:], dict(os.environ)
    ours = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    try:
        with chdir(cwd):
            os.environ.clear()
            os.environ.update(environment(env))
            yield
    finally:
        os.environ.clear()
        os.environ.update(environ)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not file.startswith(ours):
                del sys.modules[name]


def make_broker(partitions: int = 2, *topics: str) -> MemoryBroker:
    """A broker with these topics."""
    broker = MemoryBroker(partitions=partitions, auto_create=False)
    for topic in topics:
        broker.create_topic(topic, partitions)
    return broker


def fill(broker: MemoryBroker, topic: str, counts: Sequence[int]) -> None:
    """So many records in each partition, one a second from second 1000 on."""
    for partition, count in enumerate(counts):
        for number in range(count):
            broker.produce(
                topic, b"%d" % number, partition=partition, timestamp_ms=(1000 + number) * 1000
            )


def commit(
    broker: MemoryBroker, group: str, topic: str, *positions: int | tuple[int, str] | None
) -> None:
    """Positions of the partitions from 0 on, with metadata where it is given; None: none."""
    pairs = (
        (number, (at, "") if isinstance(at, int) else at)
        for number, at in enumerate(positions)
        if at is not None
    )
    offsets = {TopicPartition(topic, number): Committed(*at) for number, at in pairs}

    async def store() -> None:
        inspector = broker.connector().inspector(properties={})
        await inspector.start()
        await inspector.commit(group, offsets)
        await inspector.stop()

    asyncio.run(store())


def positions(broker: MemoryBroker, group: str) -> dict[int, int]:
    """partition -> position, of a group that has positions in one topic."""
    return {partition.partition: kept.offset for partition, kept in broker.committed(group).items()}


@contextmanager
def member_of(broker: MemoryBroker, group: str, topic: str) -> Iterator[None]:
    """A member that has joined."""
    with asyncio.Runner() as runner:
        consumer = broker.connector().consumer(
            name="worker", subscription=Topics((topic,)), group_id=group, properties={}
        )
        member = Member(consumer)
        runner.run(consumer.start(member))
        runner.run(member.until(lambda: bool(member.owned)))
        try:
            yield
        finally:
            runner.run(consumer.stop())
