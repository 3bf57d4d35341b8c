"""``produce`` and ``tail`` against a real Kafka, in processes, with pipes and a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shlex
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.process import COMMAND, Ended, environment, running
from tests.harness.kafka import clients_of

pytestmark = pytest.mark.kafka


class TopicPair:
    """A topic of two partitions, and another one for copies."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.where = ("--bootstrap-servers", servers)
        self.folder = folder
        self.name = f"orders-{uuid4().hex[:8]}"
        self.copy = f"{self.name}-copy"
        asyncio.run(self._create(servers))

    async def _create(self, servers: str) -> None:
        inspector = clients_of(servers).inspector(properties={})
        await inspector.start()
        try:
            for topic in (self.name, self.copy):
                await inspector.create_topic(topic, 2)
        finally:
            await inspector.stop()

    def command(self, *arguments: str) -> list[str]:
        return [*COMMAND, *arguments, *self.where]

    def run(self, *arguments: str, stdin: bytes = b"") -> Ended:
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=environment(),
            timeout=60,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def shell(self, *pipeline: list[str]) -> Ended:
        """Run a pipeline. Its code is that of the first command that has failed."""
        text = " | ".join(map(shlex.join, pipeline))
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {text}"],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment(),
            timeout=60,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def pair(kafka: str, tmp_path: Path) -> TopicPair:
    return TopicPair(kafka, tmp_path)


def test_a_topic_is_written_and_copied_byte_for_byte(pair: TopicPair) -> None:
    lines = [
        {"key": "a", "value": {"base64": "/wo="}, "headers": [["x", "1"], ["x", None]]},
        {"key": {"base64": "/w=="}, "value": None, "timestamp": 1_700_000_000_123},
        {"key": None, "value": "ä\u2028", "partition": 1, "headers": []},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    written = pair.run("produce", pair.name, "--json", stdin=text)
    assert (written.code, written.out) == (0, f"3 records written to {pair.name}\n"), written.err
    original = pair.run("tail", pair.name, "--json").out
    copied = pair.shell(
        pair.command("tail", pair.name, "--json"), pair.command("produce", pair.copy, "--json")
    )
    assert (copied.code, copied.out) == (0, f"3 records written to {pair.copy}\n"), copied.err
    copy = pair.run("tail", pair.copy, "--json").out
    assert sorted(original.split("\n")) == sorted(copy.replace("-copy", "").split("\n"))
    assert original.count("\n") == 3


def test_the_line_of_a_record_that_is_too_large_is_named(pair: TopicPair) -> None:
    lines = b"small\n" + b"x" * 1_100_000 + b"\n"
    refused = pair.run("produce", pair.name, stdin=lines)
    assert refused.code == 1
    assert "Error: line 2: " in refused.err
    assert f"1 record written to {pair.name}, all other lines up to 2" in refused.err
    assert pair.run("tail", pair.name).out == "small\n"


def test_a_reader_that_has_seen_enough_ends_tail_quietly(pair: TopicPair) -> None:
    numbers = "".join(f"{number:0100}\n" for number in range(5_000)).encode()
    assert pair.run("produce", pair.name, "--partition", "0", stdin=numbers).code == 0
    ended = pair.shell(pair.command("tail", pair.name), ["head", "-1"])
    assert (ended.code, ended.out, ended.err) == (0, f"{0:0100}\n", "")


def test_follow_prints_new_records_until_it_is_interrupted(pair: TopicPair) -> None:
    pair.run("produce", pair.name, stdin=b"before\n")
    with running(
        *pair.command("tail", pair.name, "--follow", "--from", "by:-1"), cwd=pair.folder
    ) as tail:
        tail.wait_for(lambda: tail.out == "before\n", "the record that was there")
        pair.run("produce", pair.name, stdin=b"after\n")
        tail.wait_for(lambda: tail.out == "before\nafter\n", "the new record")
        tail.process.send_signal(signal.SIGINT)
        ended = tail.end()
    assert (ended.code, ended.err) == (0, "")


def test_control_characters_are_escaped_on_a_terminal_only(pair: TopicPair) -> None:
    pair.run("produce", pair.name, stdin=b"\x1b[31mred\xff\n")
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            pair.command("tail", pair.name),
            stdout=theirs,
            env=environment(),
            timeout=60,
            check=True,
        )
        shown = os.read(ours, 1000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, shown) == (0, b"\\x1b[31mred\\xff\r\n")


def test_an_interrupted_produce_says_what_was_written(pair: TopicPair) -> None:
    process = subprocess.Popen(
        pair.command("produce", pair.name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=pair.folder,
        env=environment(),
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        # A line of a pipe is sent as it comes, though the input has not ended.
        seen = pair.run("tail", pair.name, "--follow", "--from", "earliest", "--limit", "1")
        assert seen.out == "one\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (1, b"")
    assert err.decode().split("\n")[0] == f"1 record written to {pair.name}"
