"""How heartbeats reach the coordinator of a group."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.wire.codec import encode
from reactive_kafka.broker.wire.definitions import CONSUMER_GROUP_HEARTBEAT
from reactive_kafka.broker.wire.requests import PreparedRequest, Request

BEAT = {"group_id": "billing", "member_id": "m-1", "member_epoch": 3}
VERSIONS = {CONSUMER_GROUP_HEARTBEAT.key: (0, 1)}


class Coordinator:
    """A client with one node, which coordinates the group and accepts all heartbeats."""

    def __init__(self) -> None:
        self.lookups = 0
        self.sent: list[PreparedRequest] = []

    async def coordinator_lookup(self, kind: Any, key: str) -> int:
        self.lookups += 1
        return 1

    async def ready(self, node: int, *, group: Any) -> bool:
        return True

    async def send(self, node: int, request: Request, **_: Any) -> Any:
        prepared = request.prepare(VERSIONS)
        self.sent.append(prepared)
        answer = encode(CONSUMER_GROUP_HEARTBEAT.response, 1, {"member_epoch": 3})
        return prepared.RESPONSE_TYPE.decode(BytesIO(answer))


async def test_a_heartbeat_that_says_the_same_is_not_encoded_again() -> None:
    client = Coordinator()
    requests = CoordinatorRequests(client, "billing")
    for epoch in (3, 3, 4, 3):
        answer = await requests.ask(CONSUMER_GROUP_HEARTBEAT, {**BEAT, "member_epoch": epoch})
        assert answer["error_code"] == 0
    assert client.sent[0] is client.sent[1]
    contents = [request.encode() for request in client.sent]
    assert contents[0] == contents[3] != contents[2]


async def test_the_coordinator_is_looked_up_once_and_again_when_it_has_moved() -> None:
    client = Coordinator()
    requests = CoordinatorRequests(client, "billing")
    await requests.ask(CONSUMER_GROUP_HEARTBEAT, BEAT)
    await requests.ask(CONSUMER_GROUP_HEARTBEAT, BEAT)
    assert client.lookups == 1
    requests.coordinator_moved()
    await requests.ask(CONSUMER_GROUP_HEARTBEAT, BEAT)
    assert client.lookups == 2
