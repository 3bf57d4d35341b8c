"""The demo from end to end, in a process of its own."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli.process import COMMAND, Running, cli, running
from tests.examples.typed_page import printed_but_for_numbers, shown
from tests.harness.kafka import clients_of

pytestmark = pytest.mark.spark

CHECKS = ("produced", "orders", "payments", "clicks", "committed", "lag", "poison", "health")


def summary(out: str) -> dict[str, tuple[str, str]]:
    """Name of a check -> its verdict and its text."""
    found = re.findall(r"^(ok|FAILED) +(\w+) +(.*)$", out, re.MULTILINE)
    return {name: (verdict, text) for verdict, name, text in found}


def ran(env: Mapping[str, str], folder: Path) -> str:
    """What a run that ended well printed."""
    ended = cli("demo", cwd=folder, env={"DEMO_SECONDS": "10", **env}, timeout_s=240)
    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    said = summary(ended.out)
    assert tuple(said) == CHECKS
    assert {verdict for verdict, _ in said.values()} == {"ok"}
    assert ended.out.splitlines()[-1] == "all of it holds"
    return ended.out


def test_it_runs_on_the_embedded_broker_and_proves_itself(tmp_path: Path) -> None:
    out = ran({}, tmp_path)
    said = {name: text for name, (_, text) in summary(out).items()}
    assert "broker: inside this process" in out
    held = re.search(r"a payment waits for approval: (demo-payments-\d offset \d+)", out)
    assert held is not None
    assert said["poison"].startswith(held[1])
    assert "on 12 of 12 partitions" in said["committed"]
    assert printed_but_for_numbers(shown("examples/demo/README.md"), out)
    assert re.fullmatch(r"(\d+) produced, \1 rows counted by Spark in \d+ batches", said["clicks"])


@pytest.mark.kafka
async def test_it_runs_on_a_real_kafka_in_topics_of_its_own(kafka: str, tmp_path: Path) -> None:
    out = ran({"DEMO_BOOTSTRAP": kafka}, tmp_path)
    topics = re.search(r"topics and groups of this run: ([\w-]+), ", out)
    assert topics is not None
    orders = topics[1]
    inspector = clients_of(kafka).inspector(properties={})
    await inspector.start()
    ends = await inspector.end_offsets((await inspector.topics())[orders])
    committed = await inspector.committed(orders)
    await inspector.stop()
    assert {partition: position.offset for partition, position in committed.items()} == ends
    assert f"{sum(ends.values())} produced" in summary(out)["orders"][1]


def children(pid: int) -> list[int]:
    """Processes that any thread of this one has started, and that still run."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def is_running(pid: int) -> bool:
    """Whether the process is there; one that has ended and is not yet collected is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "waiting until everything is ready"),
        (signal.SIGINT, "a payment waits for approval"),
    ],
)
def test_a_signal_ends_it_early_and_leaves_no_java_behind(
    number: signal.Signals, moment: str, tmp_path: Path
) -> None:
    with running(*COMMAND, "demo", cwd=tmp_path, env={"DEMO_SECONDS": "60"}) as demo:
        demo.wait_for(lambda: moment in demo.out, moment, timeout_s=120)
        demo.wait_for(lambda: bool(children(demo.process.pid)), "Spark's driver is started")
        java = children(demo.process.pid)
        demo.process.send_signal(number)
        ended = demo.end(timeout_s=60)
        assert ended.code == 1, demo.said
        assert "ended early: nothing was checked" in ended.err
        assert "Traceback" not in ended.err
        until(lambda: not any(map(is_running, java)), "java has ended", demo)


def until(condition: Callable[[], bool], what: str, demo: Running) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, f"not within 10 s: {what}\n{demo.said}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"DEMO_SECONDS": "1"}, "DEMO_SECONDS"),
        ({"DEMO_SECONDS": "long"}, "DEMO_SECONDS"),
        ({"DEMO_PORT": "x"}, "PORT"),
    ],
)
def test_wrong_usage_exits_with_2(env: Mapping[str, str], text: str, tmp_path: Path) -> None:
    ended = cli("demo", cwd=tmp_path, env=env)
    assert ended.code == 2
    assert text in ended.err


def test_a_kafka_that_is_away_exits_with_1_and_a_short_text(tmp_path: Path) -> None:
    ended = cli("demo", "--bootstrap", "127.0.0.1:1", cwd=tmp_path)
    assert ended.code == 1
    assert "127.0.0.1:1" in ended.err
    assert "Traceback" not in ended.err
