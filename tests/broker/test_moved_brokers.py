"""A client looks whether any broker answers, and asks the bootstrap servers if none does."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import aiokafka.errors as kafka_errors
import pytest

from reactive_kafka.broker.aiokafka.moved_brokers import answers_soon
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import METADATA
from reactive_kafka.broker.wire.requests import Answer

VERSION = 8


class ThreeNodes:
    """A client of three nodes, of which some answer and the others refuse, all at once."""

    def __init__(self, answering: set[int]) -> None:
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=node) for node in (1, 2, 3)]
        )
        self._answering = answering

    async def send(self, node: int, request: Any) -> Answer:
        await asyncio.sleep(0)
        if node not in self._answering:
            raise kafka_errors.NodeNotReadyError(f"node {node}")
        content = codec.encode(METADATA.response, VERSION, {"brokers": [], "topics": []})
        return Answer(METADATA, VERSION, content)


@pytest.mark.parametrize(
    ("answering", "wanted"), [({1}, True), ({2}, True), ({3}, True), (set(), False)]
)
async def test_one_broker_that_answers_is_enough_and_the_others_leave_nothing_in_the_log(
    answering: set[int], wanted: bool
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    client: Any = ThreeNodes(answering)
    assert await answers_soon(client, 1.0) is wanted
    await asyncio.sleep(0)
    # An error that nobody has looked at is told when it goes.
    gc.collect()
    assert unhandled == []
