"""Members that could not say that they leave: the next one of the process says it for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from reactive_kafka.broker.consumer.membership.group_parts import LEAVE_DEADLINE_S, TopicView
from reactive_kafka.broker.consumer.membership.left_behind import (
    MOST_KEPT,
    LeaveRequest,
    MembersLeftBehind,
)
from reactive_kafka.broker.error_codes import KNOWN
from reactive_kafka.broker.wire.definitions import LEAVE_GROUP
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError

pytestmark = pytest.mark.virtual_time

LOADING = 14
NOT_AVAILABLE = 15
MOVED = 16
UNKNOWN_MEMBER = 25
Answer = int | Exception


class ScriptedRequests:
    """Answers requests in turn; the last answer again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = [*answers]
        self.asked: list[object] = []
        self.lookups = 0
        self.takes_s = 0.01

    async def ask(
        self,
        api: Api,
        values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        deadline_s: float = 5.0,
    ) -> Mapping[str, Any]:
        assert api is LEAVE_GROUP
        assert not callable(values)
        self.asked.append(values["member_id"])
        await asyncio.sleep(self.takes_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"error_code": answer}

    def coordinator_moved(self) -> None:
        self.lookups += 1

    def leave_deadline_s(self) -> float:
        return LEAVE_DEADLINE_S

    async def session_timeout_s(self) -> float | None:
        raise AssertionError("nobody asks for a session here")

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        raise AssertionError("nobody asks for names here")

    async def look_up(self, topics: Collection[str]) -> TopicView:
        raise AssertionError("nobody asks for topics here")


def leaving(member_id: str = "m-1") -> LeaveRequest:
    return LeaveRequest(LEAVE_GROUP, {"group_id": "billing", "member_id": member_id})


async def left_behind(*member_ids: str) -> MembersLeftBehind:
    """Return what is left of members that stop in an outage."""
    members = MembersLeftBehind()
    for member_id in member_ids:
        await members.leave(leaving(member_id), ScriptedRequests(TransientBrokerError("away")))
    return members


@pytest.mark.parametrize("code", sorted(set(KNOWN) - {LOADING, NOT_AVAILABLE, MOVED}))
async def test_a_member_whose_request_was_answered_is_not_left_behind(code: int) -> None:
    members = MembersLeftBehind()
    requests = ScriptedRequests(code)
    await members.leave(leaving(), requests)
    assert not members
    assert (requests.asked, requests.lookups) == (["m-1"], 0)


@pytest.mark.parametrize(
    "answer",
    [TransientBrokerError("away"), FatalBrokerError("no right"), LOADING, NOT_AVAILABLE, MOVED],
)
async def test_a_member_that_was_not_heard_is_left_behind_after_one_attempt(answer: Answer) -> None:
    members = MembersLeftBehind()
    requests = ScriptedRequests(answer)
    await members.leave(leaving(), requests)
    assert members
    assert requests.asked == ["m-1"]
    assert requests.lookups == (answer in (NOT_AVAILABLE, MOVED))


async def test_a_member_that_gets_no_answer_waits_no_longer_than_its_deadline() -> None:
    members = MembersLeftBehind()
    requests = ScriptedRequests(0)
    requests.takes_s = 3600
    began_at = asyncio.get_running_loop().time()
    await members.leave(leaving(), requests)
    assert asyncio.get_running_loop().time() - began_at == pytest.approx(LEAVE_DEADLINE_S)
    assert members


async def test_an_answer_that_cannot_be_read_has_been_heard() -> None:
    members = MembersLeftBehind()
    await members.leave(leaving(), ScriptedRequests(MessageDecodeError("damaged")))
    assert not members


async def test_the_next_member_tells_of_all_before_it_until_the_group_has_heard() -> None:
    members = await left_behind("m-1", "m-2")
    requests = ScriptedRequests(
        TransientBrokerError("still away"), LOADING, MOVED, UNKNOWN_MEMBER, 0
    )
    await members.tell(requests)
    assert requests.asked == ["m-1"] * 4 + ["m-2"]
    assert requests.lookups == 1
    assert not members


async def test_in_a_long_outage_it_is_tried_again_with_growing_pauses() -> None:
    members = await left_behind("m-1")
    requests = ScriptedRequests(TransientBrokerError("away"))
    telling = asyncio.create_task(members.tell(requests))
    await asyncio.sleep(600)
    telling.cancel()
    assert len(requests.asked) < 310
    assert members, "the member after this one tells it"


async def test_only_the_last_ones_are_remembered() -> None:
    names = [f"m-{number}" for number in range(MOST_KEPT + 5)]
    members = await left_behind(*names)
    requests = ScriptedRequests(0)
    await members.tell(requests)
    assert requests.asked == names[5:]


async def test_two_members_that_start_at_once_tell_it_and_both_end() -> None:
    members = await left_behind("m-1", "m-2")
    requests = ScriptedRequests(0)
    await asyncio.gather(members.tell(requests), members.tell(requests))
    assert set(requests.asked) == {"m-1", "m-2"}
    assert not members
