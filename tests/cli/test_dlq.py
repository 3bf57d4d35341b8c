"""``dlq``: what it shows, and that each dead letter goes back once; on an in-memory broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.cli.dlq.dlq_command import DEFAULT_LIMIT
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import cli_on, commit, make_broker, positions
from tests.dead_letters.letters_topic import (
    CHANNELS,
    PROGRESS,
    broker_with_letters,
    values,
    write_letter,
)
from tests.failure.samples import failed


@pytest.fixture(autouse=True, scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The configuration that commands find: it names every topic but payments."""
    path = tmp_path_factory.mktemp("dlq") / "config.json"
    path.write_text(json.dumps(CHANNELS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REACTIVE_KAFKA_CONFIG", str(path))
        yield


@pytest.fixture
def broker() -> MemoryBroker:
    return broker_with_letters()


# -- show


def test_show_tells_of_each_record_where_it_comes_from_and_why(broker: MemoryBroker) -> None:
    broker.produce("letters", b"?", partition=1, timestamp_ms=2**62)
    ended = cli_on(broker, "dlq", "show", "letters")
    assert ended.code == 0, ended.err
    why = "builtins.ValueError: no amount"
    assert ended.out.splitlines() == [
        f"letters-0 0  2023-11-14T22:13:20.000+00:00  from orders-1 7 of 2023-11-14T22:13:15.000+00:00  key k7  {why}",
        f"letters-0 1  2023-11-14T22:13:20.000+00:00  from orders-1 8 of 2023-11-14T22:13:15.000+00:00  key k8  {why}",
        f"letters-1 0  2023-11-14T22:13:20.000+00:00  from orders-1 9 of 2023-11-14T22:13:15.000+00:00  key k9  {why}",
        f"letters-1 1  {2**62} ms  no dead letter  no key",
        "4 records in letters",
        "       1  no dead letters: without the headers of one",
        f"       3  {why}",
    ]


def test_an_ordinary_topic_is_told_from_a_dead_letter_topic(broker: MemoryBroker) -> None:
    for number in range(3):
        broker.produce("orders", b"%d" % number, partition=0, headers=[("trace", b"1")])
    ended = cli_on(broker, "dlq", "show", "orders")
    assert ended.code == 1
    assert "origin unknown" not in ended.out and "no reason given" not in ended.out
    assert "3  no dead letters: without the headers of one" in ended.out
    assert (
        "orders is not a dead-letter topic: none of its records has the headers of a dead letter"
        in ended.err
    )
    asked = cli_on(broker, "dlq", "show", "orders", "--json")
    said = json.loads(asked.out)
    assert (asked.code, said["no_letters"], said["by_reason"]) == (1, 3, [])
    assert [record["written_by"] for record in said["records"]] == [None] * 3


def test_a_letter_of_a_share_group_is_shown_with_its_group_and_goes_back(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("shared", 1)
    told = {
        "topic": b"orders",
        "partition": b"1",
        "offset": b"7",
        "group": b"workers",
        "delivery.count": b"5",
        "message": b"Offset rejected by client.",
    }
    headers = [(f"__dlq.errors.{name}", value) for name, value in told.items()]
    broker.produce("shared", b"seven", partition=0, headers=headers)
    said = cli_on(broker, "dlq", "show", "shared").out
    assert (
        "from orders-1 7  no key  Offset rejected by client.  group workers, delivered 5 times"
        in said
    )
    assert (
        "replayed 1 record\n"
        in cli_on(broker, "dlq", "replay", "shared", "--yes", servers=False).out
    )
    (record,) = broker.log(TopicPartition("orders", 1))
    assert (record.value, tuple(record.headers)) == (b"seven", ())


def test_what_is_no_letter_stays_and_goes_where_to_says_and_is_counted(
    broker: MemoryBroker,
) -> None:
    broker.produce("letters", b"plain", partition=0)
    assert "letters-0 2: it is not a dead letter: it has none of the headers of one" in replay(
        broker, "--yes", code=1
    )
    assert "1  of them no dead letters: without the headers of one" in replay(
        broker, "--to", "payments", "--yes"
    )


def test_values_are_shown_only_when_asked_for(broker: MemoryBroker) -> None:
    broker.produce("letters", b"canary\r\n\x1b[31m", partition=0)
    for arguments in ((), ("--json",)):
        assert "canary" not in cli_on(broker, "dlq", "show", "letters", *arguments).out
    said = cli_on(broker, "dlq", "show", "letters", "--values").out
    assert r"value canary\r\n\x1b[31m" in said
    assert "\x1b" not in said
    rows = json.loads(cli_on(broker, "dlq", "show", "letters", "--values", "--json").out)["records"]
    assert rows[2]["value"] == r"canary\r\n\x1b[31m"


def test_json_has_the_records_and_the_counts(broker: MemoryBroker) -> None:
    said = json.loads(cli_on(broker, "dlq", "show", "letters", "--limit", "1", "--json").out)
    assert said == {
        "topic": "letters",
        "records": [
            {
                "partition": 0,
                "offset": 0,
                "timestamp_ms": 1_700_000_000_000,
                "written_by": "channel",
                "origin": {
                    "topic": "orders",
                    "partition": 1,
                    "offset": 7,
                    "timestamp_ms": 1_699_999_995_000,
                },
                "exception": "builtins.ValueError",
                "reason": "no amount",
                "key": "k7",
                "value_bytes": 1,
            }
        ],
        "by_reason": [{"exception": "builtins.ValueError", "reason": "no amount", "count": 1}],
        "no_letters": 0,
    }


def test_show_belongs_to_no_group(broker: MemoryBroker) -> None:
    cli_on(broker, "dlq", "show", "letters")
    assert broker._state.groups == {}


def test_an_empty_topic_has_no_records_and_an_unknown_one_exits_with_1(
    broker: MemoryBroker,
) -> None:
    assert cli_on(broker, "dlq", "show", "payments").out == "0 records in payments\n"
    for command in ("show", "replay"):
        ended = cli_on(broker, "dlq", command, "leters", *["--dry-run"] * (command == "replay"))
        assert ended.code == 1
        assert "unknown topic leters; the cluster has orders, letters, payments" in ended.err


# -- replay


def replay(broker: MemoryBroker, *arguments: str, code: int = 0) -> str:
    ended = cli_on(broker, "dlq", "replay", "letters", *arguments, servers=False)
    assert ended.code == code, ended.err
    return ended.out + ended.err


def test_a_dry_run_shows_targets_and_counts_and_writes_nothing(broker: MemoryBroker) -> None:
    said = replay(broker, "--dry-run")
    assert said.splitlines() == [
        "letters: 3 records to replay",
        "       3  to orders",
        "would replay 3 records",
    ]
    assert values(broker) == []
    assert broker.committed(PROGRESS) == {}


def test_a_record_goes_back_as_it_was(broker: MemoryBroker) -> None:
    replay(broker, "--limit", "1", "--yes")
    (record,) = broker.log(TopicPartition("orders", 1))
    original = failed()
    assert (record.key, record.value, record.timestamp) == (b"k7", b"7", original.timestamp_ms)
    assert record.headers == original.headers


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({"retention.ms": "604800000"}, False),
        ({"retention.ms": "-1"}, True),
        ({"cleanup.policy": "compact"}, True),
    ],
)
def test_a_record_that_its_topic_would_delete_gets_the_time_of_the_replay_and_that_is_told(
    configs: dict[str, str], kept: bool, broker: MemoryBroker
) -> None:
    broker.create_topic("orders", 2, configs)
    began_ms = int(SYSTEM_CLOCK.wall() * 1000)
    planned = "3 of them with the time of the replay as timestamp, because orders has retention.ms = 604800000"
    assert (planned in replay(broker, "--dry-run")) is not kept
    said = replay(broker, "--yes")
    assert (planned in said) is not kept
    assert ("replayed 3 records, 3 with the time of the replay as timestamp\n" in said) is not kept
    timestamps = [record.timestamp or 0 for record in broker.log(TopicPartition("orders", 1))]
    assert len(timestamps) == 3
    for timestamp in timestamps:
        assert timestamp == failed().timestamp_ms if kept else timestamp >= began_ms


def test_a_young_record_keeps_its_timestamp_beside_old_ones(broker: MemoryBroker) -> None:
    broker.create_topic("orders", 2, {"retention.ms": "604800000"})
    young_ms = int(SYSTEM_CLOCK.wall() * 1000) - 60_000
    write_letter(broker, 10, timestamp_ms=young_ms)
    assert "replayed 4 records, 3 with the time of the replay as timestamp\n" in replay(
        broker, "--yes"
    )
    assert [
        record.timestamp
        for record in broker.log(TopicPartition("orders", 1))
        if record.value == b"10"
    ] == [young_ms]


def test_a_topic_whose_retention_the_broker_does_not_tell_is_named_before_anything_is_written(
    broker: MemoryBroker,
) -> None:
    del broker._state.configs["orders"]
    assert "the broker does not tell the retention of orders" in replay(broker, "--dry-run")


def test_twice_replays_once_and_later_letters_later(broker: MemoryBroker) -> None:
    assert "replayed 3 records" in replay(broker, "--yes")
    assert replay(broker, "--yes") == "letters: 0 records to replay\n"
    write_letter(broker, 10)
    assert "replayed 1 record\n" in replay(broker, "--yes")
    assert values(broker) == ["7", "8", "9", "10"]


def test_a_limit_is_where_the_next_one_goes_on(broker: MemoryBroker) -> None:
    for expected in (["7", "8"], ["7", "8", "9"]):
        replay(broker, "--limit", "2", "--yes")
        assert values(broker) == expected


def test_what_went_to_another_topic_still_goes_to_its_own(broker: MemoryBroker) -> None:
    replay(broker, "--to", "payments", "--yes")
    replay(broker, "--to", "payments", "--yes")
    assert (sorted(values(broker, "payments")), values(broker)) == (["7", "8", "9"], [])
    replay(broker, "--yes")
    assert values(broker) == ["7", "8", "9"]


@pytest.mark.parametrize("ways", [((), ("--to", "orders")), (("--to", "orders"), ())])
def test_a_target_that_is_the_origin_is_reached_once_on_both_ways(
    ways: tuple[tuple[str, ...], ...], broker: MemoryBroker
) -> None:
    replay(broker, *ways[0], "--yes")
    assert "3  replayed before" in replay(broker, *ways[1], "--yes")
    assert values(broker) == ["7", "8", "9"]


def test_records_that_cannot_go_back_stay_and_are_named_and_go_where_to_says(
    broker: MemoryBroker,
) -> None:
    broker.produce(
        "letters", b"forged", partition=0, headers=(("dead-letter-topic", b"elsewhere"),)
    )
    said = replay(broker, "--yes", code=1)
    assert "letters-0 2: it has no header dead-letter-partition, dead-letter-offset" in said
    assert "1 record cannot be sent back; name a topic with --to" in said
    assert "replayed 3 records" in said
    replay(broker, "--to", "orders", "--yes")
    assert sorted(values(broker)) == ["7", "8", "9", "forged"]


def test_headers_send_nothing_to_a_topic_that_the_configuration_does_not_name(
    broker: MemoryBroker,
) -> None:
    """Row S7 of the faults."""
    write_letter(broker, 66, topic="payments")
    said = replay(broker, "--yes", code=1)
    assert (
        "letters-0 2: it comes from topic payments, which no incoming channel of the configuration reads"
        in said
    )
    assert (values(broker), values(broker, "payments")) == (["7", "8", "9"], [])
    replay(broker, "--to", "payments", "--yes")
    assert "66" in values(broker, "payments")


def test_without_a_configuration_only_to_names_a_target(broker: MemoryBroker) -> None:
    """Row S7 of the faults."""
    for arguments, code, written in (
        (("--yes",), 1, []),
        (("--yes", "--to", "orders"), 0, ["7", "8", "9"]),
    ):
        ended = cli_on(broker, "dlq", "replay", "letters", *arguments)
        assert ended.code == code
        assert values(broker) == written


def test_what_was_delayed_goes_back_to_the_retry_topic_that_it_first_stood_in(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("orders_retry_10000", 2)
    write_letter(broker, 5, topic="orders_retry_10000")
    assert "1  to orders_retry_10000" in replay(broker, "--yes")
    assert values(broker, "orders_retry_10000") == ["5"]


def test_a_replay_into_the_topic_itself_is_wrong_usage(broker: MemoryBroker) -> None:
    assert "every record would come back to it" in replay(
        broker, "--to", "letters", "--yes", code=2
    )


def test_a_target_that_does_not_exist_is_not_created(broker: MemoryBroker) -> None:
    assert "unknown topic order" in replay(broker, "--to", "order", "--yes", code=1)
    assert "order" not in broker.topics()


def test_without_a_terminal_and_without_yes_nothing_is_asked(broker: MemoryBroker) -> None:
    """Row S10 of the faults."""
    assert "use --yes to go ahead without it" in replay(broker, code=2)
    assert values(broker) == []


def test_a_write_that_fails_ends_it_there_and_the_next_one_goes_on_there(
    broker: MemoryBroker,
) -> None:
    for offset in range(10, 15):
        write_letter(broker, offset)
    broker.delay_next("send", 0.0, times=4, of="orders")
    broker.fail_next("send", FatalBrokerError("no right to write"), times=3, of="orders")
    said = replay(broker, "--yes", code=1)
    assert (
        "letters-0 offset 4 could not be written: no right to write; 4 records were replayed "
        "before that, and the next replay continues from there\n"
    ) in said
    assert positions(broker, PROGRESS) == {0: 4}
    replay(broker, "--yes")
    assert sorted(values(broker), key=int) == [str(number) for number in range(7, 15)]


def test_a_topic_that_was_made_anew_is_told_and_how_to_begin_again(broker: MemoryBroker) -> None:
    commit(broker, PROGRESS, "letters", 99)
    said = replay(broker, "--yes", code=1)
    assert "letters-0 ends at 2, and was replayed up to 99" in said
    assert f"reactive-kafka offsets reset {PROGRESS} --topic letters --to earliest" in said
    cli_on(broker, "offsets", "reset", PROGRESS, "--topic", "letters", "--to", "earliest", "--yes")
    replay(broker, "--yes")
    assert values(broker) == ["7", "8", "9"]


def test_the_brokers_are_those_of_the_channel_that_writes_the_letters(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[kafka]\nbootstrap_servers = "elsewhere:1"\n[incoming.other]\ngroup_id = "g"\n'
        '[incoming.orders]\ngroup_id = "g"\nbootstrap_servers = "memory:1"\nfailure_strategy = "dead-letter-queue"\n'
        '[incoming.orders.dead_letter_queue]\ntopic = "letters"\n'
    )
    arguments = ("dlq", "replay", "letters", "--yes", "--config", str(file))
    assert "replayed 3 records" in cli_on(broker, *arguments, servers=False).out
    unclear = cli_on(broker, "dlq", "show", "orders", "--config", str(file), servers=False)
    assert unclear.code == 1
    assert "several connections (elsewhere:1, memory:1)" in unclear.err


WAYS = st.tuples(
    st.sampled_from(["", "orders", "payments", "spare"]), st.none() | st.integers(1, 4)
)
LETTERS = st.tuples(st.sampled_from(["orders", "spare", "payments", "gone"]), st.integers(0, 1))


@settings(max_examples=30)
@given(st.lists(st.lists(LETTERS, max_size=4) | WAYS, max_size=8))
def test_no_record_reaches_a_topic_twice_and_all_get_home_in_the_end(
    steps: list[list[tuple[str, int]] | tuple[str, int | None]],
) -> None:
    broker = make_broker(2, "orders", "payments", "spare", "letters")
    homes: dict[str, str] = {}
    for step in [*steps, ("", None)]:
        if isinstance(step, list):
            for topic, number in step:
                write_letter(broker, len(homes), topic=topic, letters_partition=number)
                homes[str(len(homes))] = topic
        else:
            to, limit = step
            cli_on(
                broker,
                "dlq",
                "replay",
                "letters",
                "--yes",
                *(["--to", to] if to else []),
                *(["--limit", str(limit)] if limit else []),
                servers=False,
            )
    for topic in ("orders", "payments", "spare"):
        assert max(Counter(values(broker, topic)).values(), default=1) == 1
    for value, home in homes.items():
        assert home in ("gone", "payments") or value in values(broker, home)


def test_offsets_without_records_are_passed(broker: MemoryBroker) -> None:
    broker.append_markers(TopicPartition("letters", 0), 3)
    broker.compact(TopicPartition("letters", 0), [0])
    replay(broker, "--yes")
    assert values(broker) == ["8", "9"]
    assert positions(broker, PROGRESS) == {0: 5, 1: 1}


# -- long topics, and machines


def test_show_stops_after_a_hundred_records_and_says_how_to_see_the_others() -> None:
    broker = make_broker(1, "orders", "letters")
    for offset in range(DEFAULT_LIMIT + 5):
        write_letter(broker, offset)
    lines = cli_on(broker, "dlq", "show", "letters").out.splitlines()
    assert len([line for line in lines if line.startswith("letters-0")]) == DEFAULT_LIMIT
    assert lines[DEFAULT_LIMIT] == (
        "the first 100 records of letters; up to 5 more: --all shows them, --limit N the first N"
    )
    everything = cli_on(broker, "dlq", "show", "letters", "--all").out.splitlines()
    assert everything[DEFAULT_LIMIT + 5] == "105 records in letters"
    # A program does not read what is missing.
    found = json.loads(cli_on(broker, "dlq", "show", "letters", "--json").out)
    assert len(found["records"]) == DEFAULT_LIMIT + 5
    both = cli_on(broker, "dlq", "show", "letters", "--all", "--limit", "1")
    assert (both.code, "--all and --limit exclude each other" in both.err) == (2, True)


def test_replay_tells_a_program_what_it_did(broker: MemoryBroker) -> None:
    write_letter(broker, 1, topic="payments")
    planned = cli_on(broker, "dlq", "replay", "letters", "--dry-run", "--json", servers=False)
    assert planned.code == 1
    assert json.loads(planned.out)["replayed"] == 0
    ended = cli_on(broker, "dlq", "replay", "letters", "--yes", "--json", servers=False)
    found = json.loads(ended.out)
    [refused] = found.pop("refused_first")
    assert (refused["partition"], refused["offset"]) == ("letters-0", 2)
    assert found == {
        "topic": "letters",
        "dry_run": False,
        "targets": {"orders": 3},
        "replayed": 3,
        "restamped": 0,
        "replayed_before": 0,
        "refused": 1,
    }
    assert "replayed 3 records" in ended.err
