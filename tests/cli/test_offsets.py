"""``offsets``: what it shows and changes, on an in-memory broker; and once, all of it, on a real
one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reactive_kafka import App, Checkpoint, Committed, IncomingSettings, Message, TopicPartition
from reactive_kafka.cli.cluster_access import ClusterAccess
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import Change
from reactive_kafka.cli.stored_positions import read_group, set_positions
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import CommitEntry
from tests.app.checkpoints import MemoryStore, forget
from tests.cli.inside import cli_on, commit, fill, make_broker, member_of, positions
from tests.config.loading import loaded
from tests.tracking.stored import text_with_acks


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


@pytest.fixture
def broker() -> MemoryBroker:
    """orders with 10 and 4 records, the first two of partition 0 gone; billing has 6 committed in
    partition 0.
    """
    broker = make_broker(2, "orders")
    fill(broker, "orders", [10, 4])
    broker.delete_records(tp(0), 2)
    commit(broker, "billing", "orders", (6, "half"))
    return broker


# -- show


def test_show_tells_position_log_lag_and_metadata_of_each_partition(broker: MemoryBroker) -> None:
    ended = cli_on(broker, "offsets", "show", "billing")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "group billing: Empty, 0 members",
        "topic   partition  position  log start  log end  lag  metadata",
        "orders          0         6          2       10    4  half",
        "orders          1         -          0        4    -",
    ]


def test_show_names_the_members(broker: MemoryBroker) -> None:
    with member_of(broker, "billing", "orders"):
        said = cli_on(broker, "offsets", "show", "billing").out.splitlines()
        (member,) = json.loads(cli_on(broker, "offsets", "show", "billing", "--json").out)[
            "members"
        ]
    assert said[0] == "group billing: Stable, 1 member"
    assert member["member_id"] in said[1]


def test_show_unwraps_what_we_keep_beside_the_users_string(broker: MemoryBroker) -> None:
    both = text_with_acks(6, [6, 8], 10, (6, 8), (8, 10), user="mine\n")
    commit(broker, "billing", "orders", (6, both), (0, both))
    kept, foreign = cli_on(broker, "offsets", "show", "billing").out.splitlines()[2:]
    assert kept.endswith(r"  mine\n; planned 6-8, 8-10; 2 acks kept below 10")
    assert foreign.endswith(
        r"  mine\n; our part of the metadata cannot be used: it belongs to position 6"
    )
    row = json.loads(cli_on(broker, "offsets", "show", "billing", "--json").out)["positions"][0]
    assert row == {
        "topic": "orders",
        "partition": 0,
        "position": 6,
        "log_start": 2,
        "log_end": 10,
        "lag": 4,
        "metadata": "mine\n",
        "planned": [[6, 8], [8, 10]],
        "kept_acks": 2,
        "store": None,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "biling"), "unknown group 'biling'"),
        (("show", "billing", "--topic", "order"), "unknown topic order; the cluster has orders"),
        (
            ("reset", "biling", "--topic", "orders", "--to", "latest", "--yes"),
            "unknown group 'biling'",
        ),
        (
            ("reset", "billing", "--topic", "order", "--to", "latest", "--yes"),
            "unknown topic order",
        ),
        (
            ("reset", "billing", "--topic", "orders", "--partition", "7", "--to", "0", "--yes"),
            "topic orders has no partition 7; it has 2, from 0 on",
        ),
        (
            ("reset", "billing", "--topic", "orders", "--to", "by:-1", "--yes"),
            "by: counts from the committed position, and there is none for orders-1",
        ),
        (("export", "biling"), "unknown group 'biling'"),
    ],
)
def test_what_is_not_there_exits_with_1_and_is_named(
    arguments: tuple[str, ...], said: str, broker: MemoryBroker
) -> None:
    ended = cli_on(broker, "offsets", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert broker.topics() == {"orders": 2}


# -- reset


def reset(broker: MemoryBroker, *arguments: str, topic: str = "orders") -> str:
    ended = cli_on(broker, "offsets", "reset", "billing", "--topic", topic, *arguments)
    assert ended.code == 0, ended.err
    return ended.out


def test_reset_shows_before_and_after_and_sets_all_partitions(broker: MemoryBroker) -> None:
    said = reset(broker, "--to", "earliest", "--yes")
    assert said.splitlines() == [
        "group billing",
        "topic   partition  before  after  change  note",
        "orders          0       6      2      -4",
        "orders          1       -      0",
        "set 2 positions",
    ]
    assert positions(broker, "billing") == {0: 2, 1: 0}
    # It belonged to position 6.
    assert broker.committed("billing")[tp(0)].metadata == ""


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("latest", 10),
        ("7", 7),
        ("99", 10),
        ("1", 2),
        ("by:-3", 3),
        ("by:-100", 2),
        ("by:100", 10),
        ("1970-01-01T00:16:45Z", 5),
        ("1970-01-01T02:16:45+02:00", 5),
        ("1970-01-02T00:00:00Z", 10),
    ],
)
def test_reset_goes_where_it_is_told(to: str, after: int, broker: MemoryBroker) -> None:
    reset(broker, "--partition", "0", "--to", to, "--yes")
    assert positions(broker, "billing") == {0: after}


def test_an_offset_outside_of_the_log_is_cut_off_with_a_word(broker: MemoryBroker) -> None:
    assert "99 is past the log's end" in reset(
        broker, "--partition", "0", "--to", "99", "--dry-run"
    )


def test_a_position_that_stays_keeps_its_metadata(broker: MemoryBroker) -> None:
    said = reset(broker, "--partition", "0", "--to", "6", "--yes")
    assert "stays" in said
    assert said.endswith("set 0 positions\n")
    assert broker.committed("billing")[tp(0)] == (6, "half")


def test_a_dry_run_changes_nothing_and_tells_all(broker: MemoryBroker) -> None:
    history = broker.commits("billing")
    said = reset(broker, "--to", "latest", "--dry-run")
    assert "would set 2 positions" in said
    assert broker.commits("billing") == history


def test_a_group_with_members_is_refused_and_they_are_named(broker: MemoryBroker) -> None:
    with member_of(broker, "billing", "orders"):
        (member,) = broker.members("billing")
        ended = cli_on(
            broker, "offsets", "reset", "billing", "--topic", "orders", "--to", "earliest", "--yes"
        )
        same = cli_on(
            broker,
            "offsets",
            "reset",
            "billing",
            "--topic",
            "orders",
            "--partition",
            "0",
            "--to",
            "6",
            "--yes",
        )
        dry = cli_on(
            broker,
            "offsets",
            "reset",
            "billing",
            "--topic",
            "orders",
            "--to",
            "earliest",
            "--dry-run",
        )
    assert ended.code == 1
    assert "group 'billing' has members, stop them first: " in ended.err
    assert member in ended.err
    assert (same.code, dry.code) == (1, 0)
    assert positions(broker, "billing") == {0: 6}


def test_without_a_terminal_and_without_yes_nothing_is_even_asked(broker: MemoryBroker) -> None:
    """Row S10 of the faults."""
    # Nobody is asked for anything.
    broker.down = True
    ended = cli_on(broker, "offsets", "reset", "billing", "--topic", "orders", "--to", "earliest")
    assert ended.code == 2
    assert "use --yes to go ahead without it" in ended.err


@pytest.mark.parametrize("to", ["2026-11-21T08:00:00", "yesterday", "-1"])
def test_a_to_that_makes_no_sense_is_wrong_usage_and_named(to: str, broker: MemoryBroker) -> None:
    ended = cli_on(broker, "offsets", "reset", "billing", "--topic", "orders", "--to", to, "--yes")
    assert ended.code == 2
    assert to in ended.err


def test_json_is_all_that_stdout_gets(broker: MemoryBroker) -> None:
    ended = cli_on(
        broker,
        "offsets",
        "reset",
        "billing",
        "--topic",
        "orders",
        "--to",
        "latest",
        "--yes",
        "--json",
    )
    assert json.loads(ended.out) == {
        "group": "billing",
        "dry_run": False,
        "changes": [
            {"topic": "orders", "partition": 0, "before": 6, "after": 10, "note": ""},
            {"topic": "orders", "partition": 1, "before": None, "after": 4, "note": ""},
        ],
    }
    assert "set 2 positions" in ended.err


# -- export and import


def test_what_was_exported_is_restored_with_its_metadata(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    file = tmp_path / "billing.json"
    file.write_text(cli_on(broker, "offsets", "export", "billing").out)
    reset(broker, "--to", "latest", "--yes")
    ended = cli_on(broker, "offsets", "import", "billing", str(file), "--yes")
    assert ended.code == 0, ended.err
    assert broker.committed("billing")[tp(0)] == (6, "half")
    # Was not in the file.
    assert positions(broker, "billing")[1] == 4
    assert (
        "set 0 positions" in cli_on(broker, "offsets", "import", "billing", str(file), "--yes").out
    )


def test_a_file_gives_a_new_group_the_positions_of_another_one(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    file = tmp_path / "billing.json"
    file.write_text(cli_on(broker, "offsets", "export", "billing").out)
    assert cli_on(broker, "offsets", "import", "copy", str(file), "--yes").code == 0
    assert broker.committed("copy") == broker.committed("billing")


def test_an_import_that_does_not_fit_changes_nothing(broker: MemoryBroker, tmp_path: Path) -> None:
    file = tmp_path / "billing.json"
    commit(broker, "billing", "orders", None, 3)
    file.write_text(cli_on(broker, "offsets", "export", "billing").out)
    broker.delete_records(tp(0), 8)
    reset(broker, "--to", "latest", "--yes")
    ended = cli_on(broker, "offsets", "import", "billing", str(file), "--yes")
    assert (ended.code, ended.out) == (1, "")
    assert "orders-0: 6 is outside of the log, 8 to 10" in ended.err
    assert positions(broker, "billing") == {0: 10, 1: 4}


def test_a_broken_file_is_wrong_usage(broker: MemoryBroker, tmp_path: Path) -> None:
    file = tmp_path / "billing.json"
    file.write_bytes(b"\xff{")
    ended = cli_on(broker, "offsets", "import", "billing", str(file), "--yes")
    assert ended.code == 2
    assert str(file) in ended.err


# -- positions in a store


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The store in which the channel orders keeps billing's positions: 8 in partition 0, with a
    state.
    """
    (tmp_path / "reactive-kafka.toml").write_text(
        '[kafka]\nbootstrap_servers = "memory:1"\n[incoming.orders]\ngroup_id = "billing"\n'
        'commit_strategy = "checkpoint"\n[incoming.orders.checkpoint]\nstore = "memory://offsets-command"\n'
    )
    monkeypatch.chdir(tmp_path)
    forget("offsets-command")
    store = MemoryStore.named("offsets-command")
    store.rows.put("billing", tp(0), Checkpoint(token=4, position=8, state="[1]", metadata="m"))
    return store


def offsets(broker: MemoryBroker, *arguments: str) -> str:
    ended = cli_on(broker, "offsets", *arguments, servers=False)
    assert ended.code == 0, ended.err
    return ended.out


def test_show_has_the_stores_positions_and_kafkas_beside_them(
    broker: MemoryBroker, rows: MemoryStore
) -> None:
    assert offsets(broker, "show", "billing").splitlines() == [
        "group billing: Empty, 0 members",
        "topic   partition  position  in kafka  log start  log end  lag  metadata",
        "orders          0         8         6          2       10    2  m; state of 3 characters",
        "orders          1         -         -          0        4    -",
        "channel 'orders' has commit_strategy = \"checkpoint\": its positions are those of its store",
    ]


def test_a_channel_without_a_group_goes_by_its_name_and_kafka_is_not_asked(
    broker: MemoryBroker, rows: MemoryStore, tmp_path: Path
) -> None:
    file = tmp_path / "reactive-kafka.toml"
    file.write_text(file.read_text().replace('group_id = "billing"', 'assign = ["orders:0"]'))
    rows.rows.put("orders", tp(0), Checkpoint(token=1, position=8))
    assert (
        offsets(broker, "show", "orders").splitlines()[0]
        == "group orders: no members, its positions are in a store only"
    )
    offsets(
        broker, "reset", "orders", "--topic", "orders", "--partition", "0", "--to", "5", "--yes"
    )
    assert rows.rows.row("orders", tp(0)) == Checkpoint(token=2, position=5)
    assert broker.committed("orders") == {}


@pytest.mark.parametrize(("to", "state"), [("3", None), ("9", "[1]")])
def test_reset_takes_the_row_over_and_kafka_follows(
    to: str, state: str | None, broker: MemoryBroker, rows: MemoryStore
) -> None:
    said = offsets(
        broker, "reset", "billing", "--topic", "orders", "--partition", "0", "--to", to, "--yes"
    )
    assert ("its state is dropped" in said) == (state is None)
    # An owner is fenced.
    assert rows.rows.row("billing", tp(0)) == Checkpoint(token=5, position=int(to), state=state)
    assert positions(broker, "billing") == {0: int(to)}


def test_a_service_goes_on_from_where_its_store_was_reset_to_without_the_old_state(
    broker: MemoryBroker, rows: MemoryStore
) -> None:
    seen: list[tuple[int, object]] = []
    app = App("reactive-kafka.toml")

    @app.incoming("orders")
    async def count(order: Message[int]) -> None:
        so_far = order.checkpoint.get()
        seen.append((order.payload, so_far))
        order.checkpoint.set([order.payload])

    async def run() -> None:
        async with TestApp(app, broker=broker) as test:
            await test.settled()

    asyncio.run(run())
    offsets(
        broker,
        "reset",
        "billing",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--to",
        "by:-3",
        "--yes",
    )
    asyncio.run(run())
    assert seen == [(8, [1]), (9, [8]), (7, None), (8, [7]), (9, [8])]


def test_a_partition_without_a_row_gets_one(broker: MemoryBroker, rows: MemoryStore) -> None:
    offsets(
        broker, "reset", "billing", "--topic", "orders", "--partition", "1", "--to", "2", "--yes"
    )
    assert rows.rows.row("billing", tp(1)) == Checkpoint(token=1, position=2)


def test_a_stores_positions_and_states_are_saved_and_restored(
    broker: MemoryBroker, rows: MemoryStore, tmp_path: Path
) -> None:
    file = tmp_path / "billing.json"
    file.write_text(offsets(broker, "export", "billing"))
    offsets(
        broker,
        "reset",
        "billing",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--to",
        "earliest",
        "--yes",
    )
    offsets(broker, "import", "billing", str(file), "--yes")
    assert rows.rows.row("billing", tp(0)) == Checkpoint(
        token=6, position=8, state="[1]", metadata="m"
    )
    assert "its state is left out: there is no store" in offsets(
        broker, "import", "copy", str(file), "--dry-run"
    )


def test_a_store_that_is_away_is_told_and_kafka_is_left_alone(
    broker: MemoryBroker, rows: MemoryStore
) -> None:
    rows.rows.faults.script("write", "away")
    ended = cli_on(
        broker,
        "offsets",
        "reset",
        "billing",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--to",
        "3",
        "--yes",
        servers=False,
    )
    assert ended.code == 1
    assert positions(broker, "billing") == {0: 6}


# -- what happens between the question and the answer


def changed(broker: MemoryBroker, change: Change, meanwhile: Callable[[], None]) -> str:
    """Why a change of billing was refused, with what happened after it had been shown."""
    return str(asyncio.run(changing(broker, change, meanwhile)))


def configured() -> tuple[IncomingSettings, ...]:
    """The channels of the configuration, if there is one."""
    here = Path("reactive-kafka.toml")
    return tuple(loaded(here).incoming.values()) if here.exists() else ()


async def changing(
    broker: MemoryBroker, change: Change, meanwhile: Callable[[], None]
) -> BaseException:
    cluster = ClusterAccess("memory:1", {}, configured(), lambda _: broker.connector())
    view = await read_group(cluster, "billing", ["orders"])
    meanwhile()
    with pytest.raises(CommandFailed) as refused:
        await set_positions(cluster, view, [change])
    return refused.value


def test_somebody_who_moves_the_group_meanwhile_is_noticed(broker: MemoryBroker) -> None:
    def move() -> None:
        broker._state.group("billing").commits[tp(0)] = Committed(7)

    assert "positions of the group have moved in the meantime: orders-0" in changed(
        broker, Change(tp(0), 6, 2), move
    )
    assert positions(broker, "billing") == {0: 7}


def test_a_member_that_joins_meanwhile_keeps_the_store_from_being_touched(
    broker: MemoryBroker, rows: MemoryStore
) -> None:
    with member_of(broker, "billing", "orders"):
        refused = changed(broker, Change(tp(0), 8, 3), lambda: None)
    assert "has members, stop them first" in refused
    assert rows.rows.history == []


async def test_a_row_that_its_owner_writes_meanwhile_is_not_written_over(
    broker: MemoryBroker, rows: MemoryStore
) -> None:
    held = rows.rows.faults.hold("write")
    refusal = asyncio.create_task(changing(broker, Change(tp(0), 8, 3), lambda: None))
    await held.arrived()
    rows.rows.put("billing", tp(0), Checkpoint(token=4, position=9))
    held.release()
    assert "the store of channel 'orders' has changed in the meantime: orders-0" in str(
        await refusal
    )
    assert rows.rows.row("billing", tp(0)) == Checkpoint(token=4, position=9)
    assert positions(broker, "billing") == {0: 6}


def test_what_is_not_read_back_as_it_was_written_is_told(broker: MemoryBroker) -> None:
    def move(_: CommitEntry) -> None:
        broker._state.group("billing").commits[tp(0)] = Committed(7)

    broker.watch_commits("billing", move)
    ended = cli_on(
        broker,
        "offsets",
        "reset",
        "billing",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--to",
        "3",
        "--yes",
    )
    assert ended.code == 1
    assert (
        "the positions were written, but others were read back: orders-0: 7 instead of 3"
        in ended.err
    )


def test_an_application_says_what_no_file_says(
    broker: MemoryBroker, rows: MemoryStore, tmp_path: Path
) -> None:
    (tmp_path / "billing_in_code.py").write_text(
        "from reactive_kafka import App\n"
        'checkpoints = {"store": "memory://offsets-command"}\n'
        'orders = {"group_id": "billing", "commit_strategy": "checkpoint", "checkpoint": checkpoints}\n'
        'app = App({"kafka": {"bootstrap_servers": "memory:1"}, "incoming": {"orders": orders}})\n'
    )
    (tmp_path / "reactive-kafka.toml").unlink()
    said = offsets(
        broker, "show", "billing", "--app", "billing_in_code:app", "--app-dir", str(tmp_path)
    )
    assert "  8         6 " in said
