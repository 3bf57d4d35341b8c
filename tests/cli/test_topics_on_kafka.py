"""``topics`` against a real Kafka: created, grown and configured, and nothing else changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from reactive_kafka.cli.commands import commands
from tests.cli.process import Ended
from tests.harness.kafka import clients_of

pytestmark = pytest.mark.kafka


def run_command(*arguments: str) -> Ended:
    done = CliRunner().invoke(commands, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)


def run(*arguments: str) -> Ended:
    return run_command("topics", *arguments)


def configs_of(servers: str, topic: str, *names: str) -> dict[str, str | None]:
    async def ask() -> dict[str, str | None]:
        inspector = clients_of(servers).inspector(properties={})
        await inspector.start()
        try:
            return (await inspector.topic_configs([topic], names))[topic]
        finally:
            await inspector.stop()

    return asyncio.run(ask())


def test_topics_become_as_they_are_declared(kafka: str, tmp_path: Path) -> None:
    name = f"orders-{uuid4().hex[:8]}"
    file = tmp_path / "config.json"
    where = ("--config", str(file))

    def declare(table: dict[str, Any]) -> None:
        tables = {"kafka": {"bootstrap_servers": kafka}, "topics": {name: table}}
        file.write_text(json.dumps(tables))

    policy = {"cleanup.policy": ["compact", "delete"], "retention.ms": 1000}
    declare({"partitions": 2, "replication_factor": 1, "config": policy})
    created = run("apply", "--yes", *where)
    assert created.code == 0, created.err
    assert run("plan", *where).out == "1 topic: everything is as declared\n"

    declare({"partitions": 3, "config": {"retention.ms": 2000}})
    assert run("plan", *where).out.splitlines() == [
        f"grow {name}: 2 to 3 partitions; new records of a key may go to another partition",
        f"configure {name}: retention.ms = 2000 (was 1000)",
    ]
    changed = run("apply", "--yes", *where)
    assert changed.code == 0, changed.err
    assert configs_of(kafka, name, *policy) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "2000",
    }
    [row] = [row for row in json.loads(run("list", "--json", *where).out) if row["topic"] == name]
    assert (row["partitions"], row["replication_factor"]) == (3, 1)

    declare({"partitions": 1, "config": {"no.such.config": 1}})
    refused = run("apply", "--yes", *where)
    assert refused.code == 1
    assert f"{name} has 3 partitions, and 1 are declared" in refused.out
    assert f"{name}: the cluster knows no topic config no.such.config" in refused.out

    declare({"config": {"retention.ms": "soon"}})
    wrong = run("apply", "--yes", *where)
    assert wrong.code == 1
    assert "retention.ms = soon" in wrong.err
    assert "0 changes made before that" in wrong.err
