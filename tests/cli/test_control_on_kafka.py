"""``control`` of a service with two workers, on a real Kafka: from an alarm to a record skipped."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.cli.process import cli, running
from tests.cli.test_run_workers import PARTITIONS, WorkerStage, handled
from tests.cli.test_run_workers import stage as stage

TOKEN = "s3cret-T0ken"


@pytest.mark.kafka
async def test_both_workers_get_past_a_bad_record_and_read_again(stage: WorkerStage) -> None:
    token = stage.folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    config = stage.folder / "reactive-kafka.toml"
    config.write_text(config.read_text() + 'token_file = "token"\n')

    async def act(action: str, *words: str) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{stage.port}"
        ended = await asyncio.to_thread(
            cli,
            "control",
            url,
            action,
            "orders",
            *words,
            "--json",
            "--token-file",
            str(token),
            cwd=stage.folder,
        )
        return ended.code, json.loads(ended.out) if ended.out else ended.err

    with running(*stage.run(), cwd=stage.folder) as run:
        run.wait_for(stage.is_up, "both have partitions")
        await stage.send("a")
        await asyncio.to_thread(run.wait_for, lambda: handled(run, "a") == PARTITIONS, "a")
        assert (await act("pause", "--reason", "a look"))[0] == 0
        await stage.send("bad", "b")
        for partition in range(PARTITIONS):
            place = ("--topic", stage.topic, "--partition", str(partition), "--offset", "1")
            code, answer = await act("skip", *place, "--yes")
            assert code == 0, answer
            assert answer["result"] == "done by 1 of 2 workers"
            assert sorted(one["status"] for one in answer["workers"]) == [200, 409]
        assert (await act("resume", "--reason", "a look"))[0] == 0
        await asyncio.to_thread(run.wait_for, lambda: handled(run, "b") == PARTITIONS, "b")
        await asyncio.to_thread(
            run.wait_for,
            lambda: stage.metric("reactive_kafka_committed_offset") == 3 * PARTITIONS,
            "all is committed",
        )
        assert stage.is_up(), "nothing has failed"

        everywhere = ("--topic", stage.topic, "--all", "--offset", "2", "--yes")
        code, answer = await act("seek", *everywhere)
        assert (code, answer["result"]) == (0, "done by 2 of 2 workers")
        lines = 2 * PARTITIONS
        await asyncio.to_thread(run.wait_for, lambda: run.out.count(" b") == lines, "b again")
    assert "asked for skip" in run.err
    assert "127.0.0.1 asked for" in run.err
    assert TOKEN not in run.err
