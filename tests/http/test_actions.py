"""Actions over HTTP: what an operator can change in a running application, and who can."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reactive_kafka import App
from reactive_kafka.events import ActionTaken
from reactive_kafka.http.actions import MAX_BODY_BYTES
from reactive_kafka.testing import TestApp

TOKEN = "s3cret-T0ken"
BEARER = {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json"}

pytestmark = pytest.mark.virtual_time


class Service:
    """A running application with two channels, and a client of its HTTP paths."""

    def __init__(self) -> None:
        self.actions: list[ActionTaken] = []
        self.handled: list[str] = []
        self.fails_on: str | None = None
        table = {"group_id": "g", "auto_offset_reset": "earliest", "value_deserializer": "string"}
        self.app = App(
            {
                "incoming": {"orders": table, "audit": {**table, "group_id": "a"}},
                "http": {"token": TOKEN},
            },
            observer=self,
        )

        @self.app.incoming("orders")
        async def handle(value: str) -> None:
            if value == self.fails_on:
                raise ValueError(value)
            self.handled.append(value)

        @self.app.incoming("audit")
        async def audit(value: str) -> None: ...

    def on(self, event: object) -> None:
        if isinstance(event, ActionTaken):
            self.actions.append(event)

    async def post(
        self, path: str, body: Any = None, headers: dict[str, str] = BEARER
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return await self.client.post(path, content=content, headers={**JSON, **headers})

    @asynccontextmanager
    async def running(self, overrides: Mapping[str, Any] | None = None) -> AsyncIterator[TestApp]:
        transport = httpx.ASGITransport(app=self.app.asgi, client=("10.9.8.7", 1))
        async with (
            TestApp(self.app, overrides=overrides) as test,
            httpx.AsyncClient(transport=transport, base_url="http://service") as self.client,
        ):
            yield test


@pytest.fixture
def service() -> Service:
    return Service()


async def test_a_paused_channel_handles_nothing_until_it_is_resumed(service: Service) -> None:
    async with service.running() as test:
        paused = await service.post("/api/channels/orders/pause")
        assert (paused.status_code, paused.json()["state"]) == (200, "paused")
        assert paused.json()["paused_by"] == ["paused by an operator"]
        assert (await service.post("/api/channels/orders/pause")).status_code == 200, "again"
        await test.send("orders", "a")
        await test.send("audit", "a")
        assert service.app.channel("orders").paused
        assert not service.app.channel("audit").paused
        assert service.handled == []
        resumed = await service.post("/api/channels/orders/resume")
        assert (resumed.status_code, resumed.json()["state"]) == (200, "running")
        await test.settled()
        assert service.handled == ["a"]


async def test_a_resume_leaves_the_pauses_of_the_application_alone(service: Service) -> None:
    async with service.running():
        service.app.channel("orders").pause("maintenance")
        await service.post("/api/channels/orders/pause", {"reason": "looking"})
        resumed = (await service.post("/api/channels/orders/resume", {"reason": "looking"})).json()
        assert resumed["paused_by"] == ["maintenance"]
        assert resumed["result"] == "still paused by: maintenance"


@pytest.mark.parametrize("reason", ["the database is away. " * 20, "two\nlines", ""])
async def test_a_resume_ends_a_pause_of_the_application_for_any_reason(
    service: Service, reason: str
) -> None:
    async with service.running():
        channel = service.app.channel("orders")
        channel.pause(reason)
        answer = await service.post("/api/channels/orders/resume", {"reason": reason})
        assert answer.status_code == 200, answer.text
        assert answer.json()["paused_by"] == []
        assert not channel.paused
        assert (await service.post("/api/channels/orders/resume", {"reason": 3})).status_code == 400


async def test_one_partition_is_paused_and_resumed(service: Service) -> None:
    async with service.running() as test:
        place = {"topic": "orders", "partition": 0}
        assert (await service.post("/api/channels/orders/pause", place)).status_code == 200
        facts = service.app.channel("orders").facts()
        assert [one.partition.partition for one in facts.partitions if one.paused] == [0]
        assert (await service.post("/api/channels/orders/resume", place)).status_code == 200
        await test.send("orders", "a")
        await test.settled()
        assert service.handled == ["a"]


async def test_a_channel_stops_and_starts(service: Service) -> None:
    async with service.running() as test:
        for _ in range(2):
            stopped = await service.post("/api/channels/orders/stop")
            assert (stopped.status_code, stopped.json()["state"]) == (200, "stopped")
        assert service.app.channel("orders").is_stopped
        assert (await service.post("/api/channels/orders/start")).status_code == 200
        assert (await service.post("/api/channels/orders/start")).status_code == 200
        await test.send("orders", "a")
        await test.settled()
        assert service.handled == ["a"]


async def test_a_failed_channel_is_restarted_and_one_that_runs_is_not(service: Service) -> None:
    async with service.running() as test:
        refused = await service.post("/api/channels/orders/restart")
        assert refused.status_code == 409
        assert refused.json()["error"] == (
            "channel 'orders' is running: restart is for one that has failed; stop and start it "
            "instead"
        )
        service.fails_on = "bad"
        await test.send("orders", "bad")
        await asyncio.sleep(1)
        assert service.app.channel("orders").facts().state == "failed"
        service.fails_on = None
        assert (await service.post("/api/channels/orders/restart")).status_code == 200
        await test.settled()
        assert service.handled == ["bad"]


@pytest.mark.parametrize(
    ("where", "handled"),
    [
        ({"offset": 1}, ["a", "b", "c", "b", "c"]),
        ({"offset": "beginning"}, ["a", "b", "c", "a", "b", "c"]),
        ({"offset": "end"}, ["a", "b", "c"]),
        ({"timestamp": "1999-01-01T00:00:00Z"}, ["a", "b", "c", "a", "b", "c"]),
        ({"timestamp": 0}, ["a", "b", "c", "a", "b", "c"]),
        ({"timestamp": "2999-01-01T00:00:00+01:00"}, ["a", "b", "c"]),
    ],
)
@pytest.mark.parametrize("which", [{"partition": 0}, {"partition": "all"}, {"all": True}])
async def test_a_seek_reads_on_elsewhere(
    service: Service, where: dict[str, Any], handled: list[str], which: dict[str, Any]
) -> None:
    async with service.running() as test:
        for value in "abc":
            await test.send("orders", value, partition=0)
        await test.settled()
        body = {"topic": "orders", **which, **where}
        answer = await service.post("/api/channels/orders/seek", body)
        assert answer.status_code == 200, answer.text
        await test.settled()
        assert service.handled == handled


async def test_a_seek_behind_the_end_of_the_log_is_refused_and_repeats_nothing(
    service: Service,
) -> None:
    async with service.running() as test:
        for value in "abc":
            await test.send("orders", value, partition=0)
        await test.settled()
        body = {"topic": "orders", "partition": 0, "offset": 33}
        answer = await service.post("/api/channels/orders/seek", body)
        assert answer.status_code == 409
        assert answer.json()["error"].startswith(
            "orders-0 ends at offset 3: there is no offset 33, and auto_offset_reset would choose"
        )
        answer = await service.post("/api/channels/orders/seek", {**body, "offset": 3})
        assert answer.status_code == 200
        await test.send("orders", "d", partition=0)
        await test.settled()
        assert service.handled == ["a", "b", "c", "d"]


async def test_a_seek_that_the_stop_of_the_application_cuts_off_does_not_pass_for_done(
    service: Service,
) -> None:
    async with service.running() as test:
        asked = test.broker.hold("end_offsets")
        body = {"topic": "orders", "all": True, "offset": "beginning"}
        seeking = asyncio.create_task(service.post("/api/channels/orders/seek", body))
        await asked.arrived()
        await service.app.stop()
        answer = await seeking
        assert answer.status_code == 503
        assert answer.json() == {"error": "the application stops: the seek was cut off"}
    [action] = service.actions
    assert (action.outcome, action.result) == ("failed", answer.json()["error"])


async def test_a_seek_that_fails_after_its_answer_is_in_the_log(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async with service.running() as test:
        test.broker.answer_timeout_s = 30
        test.broker.hold("end_offsets")
        body = {"topic": "orders", "partition": 0, "offset": "beginning"}
        answer = await service.post("/api/channels/orders/seek", body)
        assert (answer.status_code, answer.json()["result"]) == (
            202,
            "it is under way, and has not ended after 10 s",
        )
        await asyncio.sleep(30)
    lines = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert lines == [
        "seek of orders by an operator has failed after its answer: TransientBrokerError: the "
        "in-memory broker did not answer end_offsets within 30 s"
    ]


async def test_an_action_whose_request_is_cut_off_is_in_the_log_and_so_is_its_failure(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async with service.running() as test:
        test.broker.answer_timeout_s = 5
        asked = test.broker.hold("end_offsets")
        body = {"topic": "orders", "partition": 0, "offset": "beginning"}
        seeking = asyncio.create_task(service.post("/api/channels/orders/seek", body))
        await asked.arrived()
        # As a server with a time limit of its own does.
        seeking.cancel()
        await asyncio.wait([seeking])
        await asyncio.sleep(5)
    [action] = service.actions
    assert (action.action, action.status, action.outcome) == ("seek", 202, "ok")
    assert action.result == "it is under way, and its request was cut off"
    lines = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert lines == [
        "seek of orders by an operator has failed after its answer: TransientBrokerError: the "
        "in-memory broker did not answer end_offsets within 5 s"
    ]


async def test_a_seek_of_all_partitions_that_fails_says_which_have_moved(service: Service) -> None:
    async with service.running() as test:
        test.broker.answer_timeout_s = 3
        first = test.broker.hold("end_offsets")
        test.broker.hold("end_offsets")
        body = {"topic": "orders", "all": True, "offset": "beginning"}
        seeking = asyncio.create_task(service.post("/api/channels/orders/seek", body))
        await first.arrived()
        first.release()
        answer = await seeking
    assert answer.status_code == 503
    assert answer.json()["error"] == (
        "only 1 of 4 partitions have moved, orders-0: "
        "the in-memory broker did not answer end_offsets within 3 s"
    )


async def test_a_seek_of_all_partitions_in_a_rebalance_says_which_have_moved(
    service: Service,
) -> None:
    """That it is not assigned would say that nothing has changed."""
    other = App({"incoming": {"orders": {"group_id": "g"}}})

    @other.incoming("orders")
    async def handle(value: bytes) -> None: ...

    async with service.running() as test:
        for partition in range(4):
            await test.send("orders", "a", partition=partition)
        await test.settled()
        first = test.broker.hold("end_offsets")
        second = test.broker.hold("end_offsets")
        body = {"topic": "orders", "all": True, "offset": "beginning"}
        seeking = asyncio.create_task(service.post("/api/channels/orders/seek", body))
        await first.arrived()
        first.release()
        await second.arrived()
        async with TestApp(other, broker=test.broker):
            second.release()
            answer = await seeking
        assert service.handled == ["a"] * 5
    assert (answer.status_code, answer.json().get("code")) == (409, None)
    assert answer.json()["error"].startswith(
        "only 1 of 4 partitions have moved, orders-0: channel 'orders': orders-1 is not ours; "
    )


async def test_a_seek_of_a_partition_of_another_member_says_so(service: Service) -> None:
    async with service.running():
        body = {"topic": "orders", "partition": 7, "offset": 0}
        answer = await service.post("/api/channels/orders/seek", body)
        assert answer.status_code == 409
        assert answer.json() == {
            "error": "channel 'orders' does not have orders-7 at the moment; this process has "
            "orders-0, orders-1, orders-2, orders-3",
            "code": "not-assigned",
        }
        body = {"topic": "invoices", "all": True, "offset": 0}
        assert (await service.post("/api/channels/orders/seek", body)).status_code == 409


async def test_a_record_is_skipped(service: Service) -> None:
    async with service.running() as test:
        body = {"topic": "orders", "partition": 0, "offset": 1}
        later = (await service.post("/api/channels/orders/skip", body)).json()
        assert later["result"] == "orders-0 offset 1 has not come yet, and is skipped when it comes"
        for value in "abc":
            await test.send("orders", value, partition=0)
        await test.settled()
        assert service.handled == ["a", "c"]
        again = (await service.post("/api/channels/orders/skip", body)).json()
        assert again["result"] == "orders-0 offset 1 was settled before: nothing has changed"
        others = await service.post("/api/channels/orders/skip", {**body, "partition": 9})
        assert (others.status_code, others.json()["code"]) == (409, "not-assigned")
        assert others.json()["error"].startswith(
            "channel 'orders' does not have orders-9 at the moment; this process has orders-0"
        )
        unread = await service.post("/api/channels/orders/skip", {**body, "topic": "others"})
        assert unread.status_code == 409


async def test_a_topic_with_the_longest_name_has_all_actions(service: Service) -> None:
    topic = "t" * 249
    overrides = {"incoming": {"orders": {"topic": topic}}}
    async with service.running(overrides) as test:
        await test.send("orders", "a", partition=0)
        await test.settled()
        place = {"topic": topic, "partition": 0}
        for action, more in (
            ("pause", {}),
            ("resume", {}),
            ("seek", {"offset": 0}),
            ("skip", {"offset": 7}),
        ):
            answer = await service.post(f"/api/channels/orders/{action}", {**place, **more})
            assert answer.status_code == 200, answer.text
        path = f"/api/record?topic={topic}&partition=0&offset=0"
        found = await service.client.get(path, headers=BEARER)
        assert found.status_code == 200
        refused = await service.post("/api/channels/orders/pause", {**place, "topic": f"{topic}t"})
        assert "a string of 1 to 249 characters" in refused.json()["error"]


async def test_the_level_of_a_logger_changes(service: Service) -> None:
    logger = logging.getLogger("tests.actions")
    async with service.running():
        body = {"logger": "tests.actions", "level": "DEBUG"}
        answer = (await service.post("/api/log-level", body)).json()
        assert (answer["level"], answer["was"], logger.level) == ("debug", "notset", logging.DEBUG)
        await service.post("/api/log-level", {"logger": "tests.actions", "level": "notset"})
        assert logger.level == logging.NOTSET
        missing = await service.post("/api/log-level", {"logger": "no.such", "level": "info"})
        assert missing.status_code == 404
        assert "no.such" not in logging.root.manager.loggerDict


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("channels/orders/pause", {"why": 1}, "unknown argument 'why'; allowed are \"reason\""),
        ("channels/orders/pause", {"reason": ""}, "a string of 1 to 200 characters"),
        ("channels/orders/pause", {"reason": 3}, "a string of 1 to 200 characters"),
        ("channels/orders/pause", {"topic": "t"}, '"partition" is missing'),
        ("channels/orders/stop", {"drain": False}, "allowed are no arguments"),
        ("channels/orders/seek", {}, '"topic" is missing'),
        ("channels/orders/seek", {"topic": "orders"}, '"partition" is missing: a number, or "all"'),
        ("channels/orders/seek", {"topic": "orders", "partition": 0}, 'one of "offset"'),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": 0, "offset": 1, "timestamp": 2},
            'one of "offset"',
        ),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": 0, "offset": -1},
            "a whole number from 0 to",
        ),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": True, "offset": 0},
            "a whole number from 0 to",
        ),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": 0, "offset": "middle"},
            'a number, "beginning" or "end"',
        ),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": 0, "timestamp": "2026-01-01T00:00:00"},
            "a time with its zone",
        ),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": 0, "timestamp": 10**30},
            "a time with its zone",
        ),
        (
            "channels/orders/seek",
            {"topic": "orders", "partition": 0, "all": True, "offset": 0},
            "exclude each other",
        ),
        ("log-level", {"level": "loud"}, "allowed are debug, info, warning"),
        ("log-level", {}, '"level" is missing'),
    ],
)
async def test_a_wrong_argument_is_named_with_what_is_allowed(
    service: Service, path: str, body: dict[str, Any], error: str
) -> None:
    async with service.running():
        answer = await service.post(f"/api/{path}", body)
        assert answer.status_code == 400
        assert error in answer.json()["error"]
        assert not service.app.channel("orders").paused


async def test_an_unknown_channel_or_action_is_answered_with_those_that_exist(
    service: Service,
) -> None:
    async with service.running():
        answer = await service.post("/api/channels/ordres/pause")
        assert answer.status_code == 404
        assert answer.json() == {
            "error": "'ordres' is no incoming channel; there are: audit, orders"
        }
        answer = await service.post("/api/channels/orders/explode")
        assert answer.status_code == 404
        assert "pause, resume, restart, stop, start, seek, skip" in answer.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"cookie": f"token={TOKEN}"},
    ],
)
async def test_nothing_acts_without_the_token(service: Service, headers: dict[str, str]) -> None:
    async with service.running():
        for path in (
            "/api/channels/orders/pause",
            f"/api/channels/orders/pause?token={TOKEN}",
            f"/api/channels/orders/pause?access_token={TOKEN}",
            "/api/channels/nothing/pause",
            "/api/log-level",
        ):
            answer = await service.post(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json() == {"error": "this needs the token: Authorization: Bearer ..."}
            assert TOKEN not in answer.text
        assert not service.app.channel("orders").paused
        assert service.actions == []


async def test_without_a_token_there_are_no_actions(service: Service) -> None:
    app = App({"incoming": {"orders": {"group_id": "g"}}})

    @app.incoming("orders")
    async def handle(value: bytes) -> None: ...

    transport = httpx.ASGITransport(app=app.asgi)
    async with (
        TestApp(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        for path in ("channels/orders/pause", "dlq/t/replay", "log-level"):
            answer = await client.post(f"/api/{path}", json={}, headers=BEARER)
            assert answer.status_code == 404
            assert "token_file" in answer.text
        assert not app.channel("orders").paused


async def test_a_form_of_another_origin_does_nothing(service: Service) -> None:
    """A page can send a form with the cookies of a browser, and no header of its own."""
    async with service.running():
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://evil.example", **BEARER},
        ):
            form = {"content-type": "application/x-www-form-urlencoded", **headers}
            answer = await service.client.post(
                "/api/channels/orders/pause", content=b"reason=x", headers=form
            )
            assert answer.status_code == 403
        for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
            answer = await service.post(
                "/api/channels/orders/pause", b"{}", {"content-type": kind, **BEARER}
            )
            assert answer.status_code == 415
        assert not service.app.channel("orders").paused


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"{", 400, "the body is no JSON: "),
        (b"\xff\xfe", 400, "the body is no JSON: "),
        (b"{\xff}", 400, "the body is no JSON: not utf-8 at byte 1"),
        (b"[" * 60_000, 400, "the body is no JSON: nested too deeply"),
        (b"1" * 5_000, 400, "the body is no JSON: a number has too many digits"),
        (b"[]", 400, "a JSON object, not a list"),
        (b"null", 400, "a JSON object, not null"),
        (b"1", 400, "a JSON object, not a number"),
        (b'{"reason": "' + b"x" * MAX_BODY_BYTES + b'"}', 413, "the body has more than 65536"),
    ],
)
async def test_a_bad_body_is_refused(
    service: Service, body: bytes, status: int, error: str
) -> None:
    async with service.running():
        answer = await service.post("/api/channels/orders/pause", body)
        assert answer.status_code == status
        assert error in answer.json()["error"]
        assert not service.app.channel("orders").paused


async def test_each_action_leaves_one_line_and_is_counted(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="reactive_kafka")
    async with service.running():
        await service.post("/api/channels/orders/pause", {"reason": "a\nforged line"})
        await service.post("/api/channels/orders/resume", {"reason": "a\nforged line"})
        await service.post("/api/channels/orders/resume", {"x": 1})
        await service.post("/api/log-level", {"level": "info"})
        await service.post("/api/channels/ordres/pause")
        text = (await service.client.get("/metrics")).text
    assert [(one.number, one.channel, one.action, one.outcome) for one in service.actions] == [
        (1, "orders", "pause", "ok"),
        (2, "orders", "resume", "ok"),
        (3, "orders", "resume", "refused"),
        (4, "*", "log-level", "ok"),
        (5, "ordres", "pause", "refused"),
    ]
    assert {one.remote for one in service.actions} == {"10.9.8.7"}
    lines = [line.getMessage() for line in caplog.records if "asked for" in line.getMessage()]
    assert lines[0] == (
        'orders: 10.9.8.7 asked for pause {"reason": "a\\nforged line"}: 200, the channel is paused'
    )
    assert lines[4] == (
        "ordres: 10.9.8.7 asked for pause {}: 404, 'ordres' is no incoming channel; "
        "there are: audit, orders"
    )
    assert len(lines) == 5
    assert TOKEN not in caplog.text
    counted = {
        (sample.labels["action"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == "reactive_kafka_actions"
        for sample in family.samples
    }
    assert {key: value for key, value in counted.items() if value} == {
        ("pause", "ok"): 1,
        ("resume", "ok"): 1,
        ("resume", "refused"): 1,
        ("pause", "refused"): 1,
        ("log-level", "ok"): 1,
    }


async def test_a_thousand_requests_are_each_logged_and_change_nothing_twice(
    service: Service,
) -> None:
    async with service.running() as test:
        for _ in range(500):
            assert (await service.post("/api/channels/orders/pause")).status_code == 200
            assert (await service.post("/api/channels/orders/resume")).status_code == 200
        assert [one.number for one in service.actions] == list(range(1, 1001))
        await test.send("orders", "a")
        await test.settled()
        assert service.handled == ["a"]


async def test_an_application_that_does_not_run_answers_503(service: Service) -> None:
    service.app.configure()
    transport = httpx.ASGITransport(app=service.app.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.post("/api/channels/orders/pause", json={}, headers=BEARER)
    assert answer.status_code == 503
    assert "nothing can be changed now" in answer.json()["error"]
