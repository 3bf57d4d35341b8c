import dataclasses
import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.observe.facts import AppFacts, ChannelState
from reactive_kafka.observe.health import Health, health
from tests.observe.samples import (
    ORDERS_0,
    ORDERS_1,
    app,
    apps,
    batch,
    channel,
    outgoing,
    partition,
    poison,
    spark,
)


def statuses(found: Health) -> dict[str, str]:
    return {name: getattr(found, name).status for name in ("live", "ready", "started", "overall")}


ALL_UP = {"live": "UP", "ready": "UP", "started": "UP", "overall": "UP"}
NOT_READY = ALL_UP | {"ready": "DOWN", "overall": "DOWN"}
NOT_ALIVE = NOT_READY | {"live": "DOWN"}


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_a_channel_that_somebody_has_stopped_is_ready_and_says_why(state: ChannelState) -> None:
    found = health(
        app(
            channel(
                state=state,
                stopped_by="by hand",
                has_joined=False,
                not_ready=("no",),
                partitions=(),
            )
        )
    )
    assert statuses(found) == ALL_UP
    assert found.ready.checks[0].data["reason"] == "by hand"
    assert statuses(health(app(channel(state=state)))) == NOT_READY


def test_a_running_channel_is_up_and_its_data_is_what_the_contract_says() -> None:
    found = health(app(channel()))
    assert statuses(found) == ALL_UP
    assert found.overall.to_json() == {
        "status": "UP",
        "checks": [
            {
                "name": "orders",
                "status": "UP",
                "data": {
                    "direction": "incoming",
                    "state": "running",
                    "reason": None,
                    "group_protocol": None,
                    "paused_by": [],
                    "postponed": [],
                    "warnings": [],
                    "partitions": [
                        {
                            "topic": "orders",
                            "partition": 0,
                            "position": 20,
                            "committed": 17,
                            "lag": 5,
                            "in_flight": 2,
                            "queued": 1,
                            "oldest_unacked_seconds": 1.5,
                            "paused": False,
                            "done": False,
                        }
                    ],
                    "poison": [],
                },
            }
        ],
    }


def test_poison_names_the_record_its_age_the_limit_and_how_many_wait() -> None:
    data = health(app(channel(poison=(poison(),)))).overall.checks[0].data
    assert (
        data["reason"]
        == "poison: orders-0 offset 17 unsettled for 61.2 s (limit 60 s), 42 waiting behind it"
    )
    assert data["poison"] == [
        {"topic": "orders", "partition": 0, "offset": 17, "age_seconds": 61.234, "waiting": 42}
    ]


@pytest.mark.parametrize(
    ("on_poison", "expected"),
    [("fail", NOT_ALIVE), ("pause-partition", NOT_READY), ("warn", ALL_UP)],
)
def test_on_poison_decides_which_probes_go_down(on_poison: str, expected: dict[str, str]) -> None:
    found = health(app(channel(on_poison=on_poison, poison=(poison(),))))
    assert statuses(found) == expected
    assert "offset 17" in found.overall.checks[0].data["reason"]


def test_a_channel_recovers_when_its_poison_is_settled() -> None:
    assert statuses(health(app(channel(on_poison="pause-partition", poison=())))) == ALL_UP


def test_many_poison_records_are_named_up_to_a_point_and_all_are_in_the_data() -> None:
    found = health(app(channel(poison=tuple(poison(offset=offset) for offset in range(9)))))
    data = found.overall.checks[0].data
    assert data["reason"].endswith(
        "offset 2 unsettled for 61.2 s (limit 60 s), 42 waiting behind it; poison: 6 more"
    )
    assert len(data["poison"]) == 9


@given(st.sampled_from(get_args(ChannelState)), st.integers(0, 9))
def test_poison_is_named_and_counted_unless_the_channel_has_failed(
    state: ChannelState, number: int
) -> None:
    records = tuple(poison(offset=offset) for offset in range(number))
    found = health(app(channel(state=state, reason="ValueError: bad", poison=records)))
    data = found.overall.checks[0].data
    texts = [text for text in data["reason"].split("; ") if text.startswith("poison:")]
    named = [text for text in texts if "unsettled for" in text]
    more = [text for text in texts if text not in named]
    assert len(data["poison"]) == number
    if state == "failed":
        assert texts == []
    else:
        assert len(named) == min(number, 3)
        assert more == ([f"poison: {number - 3} more"] if number > 3 else [])


def test_a_failed_channel_is_not_alive_and_the_others_stay_up() -> None:
    found = health(
        app(channel(state="failed", reason="ValueError: bad\norder"), channel(channel="clicks"))
    )
    assert statuses(found) == NOT_ALIVE
    assert [check.status for check in found.live.checks] == ["DOWN", "UP"]
    assert found.live.checks[0].data["reason"] == r"ValueError: bad\norder"


def test_a_broker_away_is_not_ready_but_alive() -> None:
    found = health(app(channel(broker_error="127.0.0.1:9092 refused the connection")))
    assert statuses(found) == NOT_READY
    assert found.ready.checks[0].data["reason"] == "broker: 127.0.0.1:9092 refused the connection"


def test_a_broker_away_from_a_cold_start_is_not_started_either() -> None:
    found = health(
        app(channel(state="connecting", has_joined=False, broker_error="no broker", partitions=()))
    )
    assert statuses(found) == NOT_READY | {"started": "DOWN"}
    assert found.started.checks[0].data["reason"] == (
        "broker: no broker; the channel is connecting; the channel has no assignment yet"
    )


def test_a_member_without_partitions_is_ready() -> None:
    assert statuses(health(app(channel(partitions=())))) == ALL_UP


def test_a_paused_channel_is_ready() -> None:
    assert (
        statuses(health(app(channel(state="paused", partitions=(partition(paused=True),)))))
        == ALL_UP
    )


def test_who_has_paused_a_channel_and_what_it_warns_of_stands_in_its_data_and_turns_nothing_down() -> (
    None
):
    found = health(
        app(
            channel(
                state="paused",
                paused_by=("closed\nbank", "me"),
                postponed=("o\nrders-0",),
                warnings=("too\nlong",),
            )
        )
    )
    assert statuses(found) == ALL_UP
    [check] = found.checks
    assert check.data["paused_by"] == ["closed\\nbank", "me"]
    assert check.data["postponed"] == ["o\\nrders-0"]
    assert check.data["warnings"] == ["too\\nlong"]
    assert check.data["reason"] is None


def test_started_waits_for_every_channel() -> None:
    found = health(app(channel(), channel(channel="clicks", has_joined=False, partitions=())))
    assert [check.status for check in found.started.checks] == ["UP", "DOWN"]
    assert statuses(found) == NOT_READY | {"started": "DOWN"}


def test_further_reasons_make_a_channel_not_ready() -> None:
    found = health(
        app(
            channel(
                not_ready=("commits are refused: NOT_COORDINATOR", "position of orders-1 not known")
            )
        )
    )
    assert statuses(found) == NOT_READY
    assert found.ready.checks[0].data["reason"] == (
        "commits are refused: NOT_COORDINATOR; position of orders-1 not known"
    )


def test_a_spark_session_that_is_not_ready_has_a_check_and_speaks_through_its_channel_too() -> None:
    found = health(
        app(
            channel(channel="clicks"),
            channel(),
            spark=(spark(ready=False, reason="the driver\nis starting"),),
        )
    )
    assert statuses(found) == NOT_READY
    assert [(check.name, check.status) for check in found.ready.checks] == [
        ("clicks", "DOWN"),
        ("orders", "UP"),
        ("spark", "DOWN"),
    ]
    assert found.ready.checks[0].data["reason"] == r"spark: the driver\nis starting"
    assert found.ready.checks[2].data["reason"] == r"the driver\nis starting"
    assert found.live.is_up


def test_two_channels_say_the_reason_of_their_session_once_and_further_ones_beside_it() -> None:
    away = spark(ready=False, reason="no executors")
    two = (away, dataclasses.replace(away, channel="views"))
    assert health(app(spark=two)).ready.checks[0].data["reason"] == "no executors"
    other = (away, dataclasses.replace(away, channel="views", reason=None))
    assert health(app(spark=other)).ready.checks[0].data["reason"] == "no executors; not ready"
    one_is_ready = (spark(channel="views"), away)
    assert not health(app(spark=one_is_ready)).ready.is_up


def test_a_spark_check_tells_mode_and_running_batches_of_each_channel() -> None:
    sessions = (spark(mode="ranges", running=(batch(),)), spark(channel="views"))
    found = health(app(channel(channel="clicks"), spark=sessions))
    assert statuses(found) == ALL_UP
    clicks, check = found.ready.checks
    running = {
        "id": "7f3a0123456789ab",
        "ranges": ["clicks-0 [100, 50100)"],
        "records": 50_000,
        "attempt": 1,
        "elapsed_seconds": 12.346,
        "timeout_seconds": 600.0,
        "stages": 2,
        "stages_done": 0,
        "tasks": 8,
        "tasks_done": 5,
        "tasks_active": 2,
        "tasks_failed": 0,
    }
    assert clicks.data["spark"] == {"mode": "ranges", "running": [running]}
    assert check.data == {
        "state": "running",
        "reason": None,
        "channels": [
            {"channel": "clicks", "mode": "ranges", "running": [running]},
            {"channel": "views", "mode": "records", "running": []},
        ],
    }


def test_an_outgoing_channel_whose_broker_is_away_is_not_ready() -> None:
    found = health(app(channel(), outgoing=(outgoing(broker_error="no leader", in_flight=3),)))
    assert statuses(found) == NOT_READY
    assert found.ready.checks[1].to_json() == {
        "name": "invoices",
        "status": "DOWN",
        "data": {
            "direction": "outgoing",
            "state": "connecting",
            "reason": "broker: no leader",
            "in_flight": 3,
        },
    }


def test_an_outgoing_channel_that_waits_for_something_else_is_not_ready() -> None:
    found = health(app(channel(), outgoing=(outgoing(not_ready=("the registry is away",)),)))
    assert statuses(found) == NOT_READY
    assert found.ready.checks[1].data["reason"] == "the registry is away"


def test_no_two_checks_have_one_name() -> None:
    shared = app(
        channel(),
        channel(channel="spark"),
        outgoing=(outgoing(channel="orders"), outgoing(channel="application")),
        spark=(spark(),),
        stopping=True,
    )
    assert [check.name for check in health(shared).checks] == [
        "application (of the application)",
        "orders",
        "spark",
        "spark (of the application)",
        "orders (outgoing)",
        "application",
    ]


def test_an_application_that_is_starting_or_stopping_says_so_and_is_alive() -> None:
    starting, stopping = health(app(started=False)), health(app(channel(), stopping=True))
    assert statuses(starting) == NOT_READY | {"started": "DOWN"}
    assert statuses(stopping) == NOT_READY
    assert starting.ready.checks[0].data["reason"] == "the application is starting"
    assert stopping.ready.checks[0].data["reason"] == "the application is stopping"


def test_an_application_without_channels_is_up_once_it_has_started() -> None:
    assert statuses(health(app())) == ALL_UP


@given(apps())
def test_live_is_down_only_for_a_failed_channel_or_poison_that_fails(facts: AppFacts) -> None:
    broken = any(
        c.state == "failed" or (c.poison and c.on_poison == "fail") for c in facts.channels
    )
    assert health(facts).live.is_up == (not broken)


@given(apps())
def test_ready_is_never_up_while_a_broker_is_away(facts: AppFacts) -> None:
    errors = [c.broker_error for c in facts.channels] + [c.broker_error for c in facts.outgoing]
    if any(error is not None for error in errors):
        assert not health(facts).ready.is_up


@given(apps())
def test_ready_includes_started_and_overall_is_live_and_ready(facts: AppFacts) -> None:
    found = health(facts)
    assert found.started.is_up or not found.ready.is_up
    assert found.overall.is_up == (found.live.is_up and found.ready.is_up)


@given(apps())
def test_whatever_is_down_has_a_reason_and_every_reason_is_one_line(facts: AppFacts) -> None:
    found = health(facts)
    for probe in (found.live, found.ready, found.started, found.overall):
        for check in probe.checks:
            reason = check.data["reason"]
            assert reason or check.status == "UP"
            assert reason is None or reason.isprintable()
        assert json.loads(json.dumps(probe.to_json(), allow_nan=False)) == probe.to_json()


@given(st.data())
def test_one_channel_never_changes_the_check_of_another(data: st.DataObject) -> None:
    one, other = data.draw(apps()), data.draw(apps())
    merged = app(
        *(c for c in one.channels if c.channel == "orders"),
        *(c for c in other.channels if c.channel != "orders"),
    )
    for check in health(merged).ready.checks:
        alone = app(*(c for c in merged.channels if c.channel == check.name))
        assert check in health(alone).ready.checks


def test_partitions_of_one_topic_are_listed_in_the_order_of_the_facts() -> None:
    data = (
        health(
            app(channel(partitions=(partition(partition=ORDERS_1), partition(partition=ORDERS_0))))
        )
        .checks[0]
        .data
    )
    assert [entry["partition"] for entry in data["partitions"]] == [1, 0]


def test_the_example_in_the_docs_has_the_shape_of_a_real_answer() -> None:
    page = (Path(__file__).parents[2] / "docs/health.md").read_text()
    example = json.loads(page.partition("```json")[2].partition("```")[0])
    real = health(app(channel(poison=(poison(),)))).overall.to_json()
    assert shape(example) == shape(real)


def shape(value: object) -> object:
    """Names and nesting of a JSON value, without what it says."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


def test_an_application_that_has_ended_by_itself_is_down_everywhere_and_says_why() -> None:
    found = health(
        dataclasses.replace(
            app(channel()), ended="the application has failed: ZeroDivisionError: a bug"
        )
    )
    assert statuses(found) == {
        "live": "DOWN",
        "ready": "DOWN",
        "started": "DOWN",
        "overall": "DOWN",
    }
    check = found.live.checks[0]
    assert (check.name, check.data["state"]) == ("application", "ended")
    assert check.data["reason"] == "the application has failed: ZeroDivisionError: a bug"


def test_an_outgoing_channel_whose_task_has_ended_is_not_alive() -> None:
    found = health(
        app(
            channel(),
            outgoing=(dataclasses.replace(outgoing(), failure="ZeroDivisionError: a bug"),),
        )
    )
    assert statuses(found) == NOT_ALIVE
    check = found.live.checks[-1]
    assert (check.data["state"], check.data["reason"]) == (
        "failed",
        "it has failed: ZeroDivisionError: a bug",
    )


def test_a_channel_without_health_has_no_check_in_any_probe() -> None:
    silent = {"health_enabled": False}
    failed, away = (
        channel(channel="a", state="failed", **silent),
        outgoing(broker_error="gone", failure="bug", **silent),
    )
    unjoined = channel(channel="clicks", has_joined=False, state="connecting", **silent)
    lost = spark(ready=False, reason="no executors")
    found = health(app(failed, unjoined, channel(), outgoing=(away,), spark=(lost,)))
    assert lost.channel == "clicks"
    assert statuses(found) == ALL_UP
    for probe in (found, found.live, found.ready, found.started):
        assert [check.name for check in probe.checks] == ["orders"]
    assert health(app(failed)).checks == ()
