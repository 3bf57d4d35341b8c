"""Any tree of values that come of values: acks travel back once, when all is done, and nacks for
what has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.events import RecordIgnored
from reactive_kafka.testing import run_in_virtual_time
from tests.app.helpers import Recorder, committed, running, send


@dataclass
class Node:
    """A value: how often its handler fails first, whether it then nacks by hand, and what it sends
    on.
    """

    fails: int
    kids: list[Node] = field(default_factory=list)
    name: str = ""
    done: bool = False
    calls: int = 0

    def nodes(self) -> list[Node]:
        return [self, *(node for kid in self.kids for node in kid.nodes())]


LEVELS = 4
ATTEMPTS = 3
NODES = st.recursive(
    st.builds(Node, fails=st.integers(0, 1)),
    lambda kids: st.builds(
        Node, fails=st.sampled_from([0, 0, 1, 2, ATTEMPTS]), kids=st.lists(kids, max_size=3)
    ),
    max_leaves=12,
)


def cut(node: Node, name: str, levels: int = LEVELS) -> Node:
    """Number the nodes, and leave out those that are deeper than there are channels."""
    node.name = name
    node.kids = (
        [cut(kid, f"{name}.{at}", levels - 1) for at, kid in enumerate(node.kids)]
        if levels > 1
        else []
    )
    return node


def tree_app(recorder: Recorder, trees: list[Node], *, room: int) -> App:
    """Order number n is the tree n; a level hands the kids of each node on to the next one, in one
    of four ways.
    """
    levels = [f"level{number}" for number in range(LEVELS)]
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": "ignore",
                    "concurrency": 3,
                    "ordering": "unordered",
                    "retry": {"max_attempts": 5},
                }
            },
            "outgoing": {"invoices": {}},
            "memory": {name: {"max_in_flight": room} for name in levels},
        },
        observer=recorder,
    )
    retry = {"max_attempts": ATTEMPTS, "backoff": "10ms"}

    @app.incoming("orders")
    @app.outgoing("level0")
    async def upstream(order: int) -> Node:
        return trees[order]

    def attempt(node: Node) -> None:
        node.calls += 1
        if node.calls <= node.fails:
            raise ValueError(node.name)
        node.done = True

    async def listed(node: Node) -> list[Record] | None:
        await asyncio.sleep(0)
        attempt(node)
        return [Record(kid) for kid in node.kids] or None

    async def yielded(node: Node) -> AsyncIterator[Node]:
        attempt(node)
        for kid in node.kids:
            yield kid

    async def by_hand(message: Message[Node]) -> list[Record] | None:
        await asyncio.sleep(0.001)
        try:
            attempt(message.payload)
        except ValueError as error:
            if message.payload.calls < ATTEMPTS:
                raise
            message.nack(error)
            return None
        return [Record(kid) for kid in message.payload.kids] or None

    async def last(batch: Batch[Node]) -> None:
        for message in batch:
            try:
                attempt(message.payload)
            except ValueError as error:
                message.nack(error)

    for number, (name, function) in enumerate(
        zip(levels, (listed, yielded, by_hand, last), strict=True)
    ):
        if number < LEVELS - 1:
            app.outgoing(f"level{number + 1}")(function)
        app.incoming(name, retry=retry)(function)
    return app


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(NODES, min_size=1, max_size=6), room=st.integers(1, 4))
def test_an_order_is_acked_when_all_that_came_of_it_is_and_nacked_for_one_that_failed(
    trees: list[Node], room: int
) -> None:
    trees = [cut(tree, str(number)) for number, tree in enumerate(trees)]
    recorder = Recorder()

    async def main(_: object) -> None:
        async with asyncio.timeout(600):
            app = tree_app(recorder, trees, room=room)
            async with running(app) as test:
                await send(test, *range(len(trees)))
                await test.settled(timeout=120)
                assert committed(test) == len(trees)

    run_in_virtual_time(main)
    for offset, tree in enumerate(trees):
        told = [event.reason for event in recorder.of(RecordIgnored) if event.offset == offset]
        nodes = tree.nodes()
        failed = {f"ValueError: {node.name}" for node in nodes if not node.done and node.calls}
        assert len(told) == bool(failed), "one verdict"
        assert set(told) <= failed
        if not failed:
            assert all(node.done for node in nodes)


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(NODES, min_size=1, max_size=6), room=st.integers(1, 4))
def test_a_send_ends_when_all_that_came_of_it_has_and_no_sooner(
    trees: list[Node], room: int
) -> None:
    trees = [cut(tree, str(number)) for number, tree in enumerate(trees)]

    async def main(_: object) -> None:
        async with asyncio.timeout(600):
            app = tree_app(Recorder(), [], room=room)
            emitter = app.emitter("level0")

            async def sent(tree: Node) -> None:
                try:
                    await emitter.send(tree)
                except ValueError as error:
                    (culprit,) = [node for node in tree.nodes() if node.name == str(error)]
                    assert not culprit.done
                    assert culprit.calls >= min(culprit.fails, 1)
                else:
                    assert all(node.done for node in tree.nodes())

            async with running(app) as test:
                await asyncio.gather(*map(sent, trees))
                await test.settled(timeout=120)
                assert [one.in_flight for one in app.facts().outgoing] == [0] * len(
                    app.facts().outgoing
                )

    run_in_virtual_time(main)
