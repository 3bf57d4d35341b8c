"""H21: heartbeats end for good with the first one that is refused."""

from __future__ import annotations

from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, until
from tests.broker.hazards.test_codes import counting, produce

HEARTBEAT = 12
CODE, NAME = 30, "GROUP_AUTHORIZATION_FAILED"


async def test_h21_a_member_whose_heartbeats_were_refused_goes_on_with_them(
    rig: Rig, group: str
) -> None:
    """Row J8 of the faults."""
    topic = await rig.create_topic(1)
    async with running(rig.bootstrap_servers, topic, group, {"session_timeout_ms": 6000}) as diary:
        await diary.until_assigned(1)
        rig.broker.answer_with(HEARTBEAT, CODE, times=10_000)
        seen: list[str] = []

        def is_told() -> bool:
            seen.append(str(diary.app.health().ready.to_json()))
            return sum(NAME in one for one in seen) > 300

        # For some seconds.
        await until(is_told, "readiness names it")
        first = next(at for at, one in enumerate(seen) if NAME in one)
        # Without a break.
        assert all(NAME in one for one in seen[first:])
        rig.broker.heal(HEARTBEAT)
        asked = counting(rig)
        await produce(rig, topic, b"1", b"2")
        await until(lambda: diary.committed() == {0: 2}, "it goes on by itself")
        await until(lambda: asked[HEARTBEAT] > 3, "there are heartbeats")
        await until(lambda: diary.app.health().status == "UP", "it is well")
        assert diary.handled == [b"1", b"2"]
