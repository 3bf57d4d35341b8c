"""How often a broker is asked that answers one kind of request with an error for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

import pytest

from reactive_kafka import App
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, until
from tests.broker.hazards.test_codes import counting

FOREVER = 10_000
WATCHED_S = 3.0
MOST = 12
"""Requests in that time: what waits 0.1 s each time makes 15 to 30, and what does not wait
hundreds.
"""

UNHEARD_OF = 999
INIT_PRODUCER_ID = 22
API_VERSIONS = 18
"""The first request of each connection, of which an attempt to start makes up to three."""


class Refusal(NamedTuple):
    """A request, and the code that it is answered with; *told* stands in readiness."""

    key: int
    name: str
    code: int
    told: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.code}"


OF_MEMBERS = (
    Refusal(10, "FindCoordinator", 15),
    Refusal(10, "FindCoordinator", UNHEARD_OF, "[Error 999]"),
    Refusal(11, "JoinGroup", 14),
    Refusal(11, "JoinGroup", 16),
    Refusal(11, "JoinGroup", 25),
    Refusal(11, "JoinGroup", 81, "group.max.size"),
    Refusal(11, "JoinGroup", UNHEARD_OF, "[Error 999]"),
    Refusal(12, "Heartbeat", UNHEARD_OF, "[Error 999]"),
    Refusal(14, "SyncGroup", 27),
    Refusal(14, "SyncGroup", UNHEARD_OF, "[Error 999]"),
)
OF_PRODUCERS = tuple(
    Refusal(INIT_PRODUCER_ID, "InitProducerId", code) for code in (14, 15, 51, UNHEARD_OF)
)


async def watched(rig: Rig, asked: Counter[int], refusal: Refusal) -> None:
    await until(lambda: asked[refusal.key], "it is asked")
    before = Counter(asked)
    await asyncio.sleep(WATCHED_S)
    since = asked - before
    assert max(since[key] for key in (10, 11, 14, refusal.key)) <= MOST, f"requests by API: {since}"
    assert since[API_VERSIONS] <= 3 * MOST


@pytest.mark.parametrize("refusal", OF_MEMBERS, ids=str)
async def test_a_member_that_is_refused_for_ever_asks_a_few_times_and_says_why(
    rig: Rig, group: str, refusal: Refusal
) -> None:
    topic, asked = await rig.create_topic(1), counting(rig)
    rig.broker.answer_with(refusal.key, refusal.code, times=FOREVER)
    async with running(rig.bootstrap_servers, topic, group) as diary:
        await watched(rig, asked, refusal)
        ready = diary.app.health().ready
        assert refusal.told in str(ready.to_json())
        assert ready.status == "DOWN"
        assert diary.app.health().live.status == "UP"
        rig.broker.heal(refusal.key)
        await until(lambda: diary.app.health().status == "UP", "it goes on by itself", 15)


@pytest.mark.parametrize("transactional_id", [None, "billing"])
@pytest.mark.parametrize("refusal", OF_PRODUCERS, ids=str)
async def test_a_producer_that_gets_no_id_asks_a_few_times(
    rig: Rig, refusal: Refusal, transactional_id: str | None
) -> None:
    asked = counting(rig)
    outgoing = {"topic": await rig.create_topic(1)}
    if transactional_id is not None:
        outgoing["transactional_id"] = transactional_id
    rig.broker.answer_with(refusal.key, refusal.code, times=FOREVER)
    app = App(
        {
            "kafka": {"bootstrap_servers": rig.bootstrap_servers},
            "outgoing": {"invoices": outgoing},
            "http": {"enabled": False},
        }
    )
    emitter = app.emitter("invoices")
    async with app:
        sending = asyncio.ensure_future(emitter.send(b"1"))
        await watched(rig, asked, refusal)
        rig.broker.heal(refusal.key)
        await asyncio.wait([sending], timeout=15)
        assert sending.done()
        sending.exception()
