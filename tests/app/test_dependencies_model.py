"""Random graphs of dependencies: each is made once a scope and ended once, after all that were made
of it.
"""

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import App, Batch, Depends
from reactive_kafka.testing import MemoryBroker, TestApp

Kind = Literal["async", "plain", "class", "async generator", "generator"]
HandlerKind = Literal["async", "blocking", "batch", "generator"]
ENDED = ("async generator", "generator")


@dataclass(frozen=True)
class Node:
    """A dependency; it needs some of the nodes before it."""

    kind: Kind
    scope: Literal["call", "app"]
    needs: tuple[int, ...]
    # Which of its makings fail.
    fails: tuple[int, ...]
    # Its end raises after each call that has not failed.
    breaks: bool = False


@dataclass(eq=False)
class Made:
    """A value of a node, and the values that it was made of."""

    node: int
    of: Sequence["Made"]
    users: list["Made"] = field(default_factory=list)
    ends: int = 0

    def all(self) -> Iterator["Made"]:
        yield self
        for one in self.of:
            yield from one.all()


class Refused(Exception):
    """What factories, ends and handlers raise."""


class World:
    """The factories of a graph, and what became of their values. They are called from several
    threads.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.lock = threading.Lock()
        self.made: list[Made] = []
        self.begun: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.factories: list[Callable[..., Any]] = []
        for number in range(len(nodes)):
            self.factories.append(self.factory(number))

    def make(self, number: int, values: dict[str, Any]) -> Made:
        node = self.nodes[number]
        with self.lock:
            self.begun[number] += 1
            if self.begun[number] in node.fails:
                raise Refused(f"{number}")
            value = Made(number, [values[f"p{one}"] for one in node.needs])
            self.check_usable(value)
            for one in value.of:
                one.users.append(value)
            self.made.append(value)
            return value

    def check_usable(self, value: Made) -> None:
        for one in value.all():
            if one.ends:
                self.wrong.append(f"{value.node} was made of {one.node}, which has ended")

    def end(self, value: Made, failed: bool) -> None:
        with self.lock:
            value.ends += 1
            for user in value.users:
                if self.nodes[user.node].kind in ENDED and not user.ends:
                    self.wrong.append(
                        f"{value.node} has ended before {user.node}, which was made of it"
                    )
        if self.nodes[value.node].breaks and not failed:
            raise Refused(f"end of {value.node}")

    def factory(self, number: int) -> Callable[..., Any]:
        made, world = self.factories, self

        async def awaited(**values: Any) -> Made:
            await asyncio.sleep(0)
            return world.make(number, values)

        def plain(**values: Any) -> Made:
            return world.make(number, values)

        async def entered(**values: Any) -> AsyncIterator[Made]:
            value, failed = world.make(number, values), True
            try:
                yield value
                failed = False
            finally:
                await asyncio.sleep(0)
                world.end(value, failed)

        def generator(**values: Any) -> Iterator[Made]:
            value, failed = world.make(number, values), True
            try:
                yield value
                failed = False
            finally:
                world.end(value, failed)

        class Class(Made):
            def __new__(cls, **values: Any) -> Any:
                return world.make(number, values)

        factory: Any = {
            "async": awaited,
            "plain": plain,
            "class": Class,
            "async generator": entered,
            "generator": generator,
        }[self.nodes[number].kind]
        factory.__signature__ = signature_of(
            (one, made[one], self.nodes[one].scope) for one in self.nodes[number].needs
        )
        return factory  # type: ignore[no-any-return]


def signature_of(needs: Any, *first: inspect.Parameter) -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    asked = [
        inspect.Parameter(
            f"p{number}", keyword, annotation=Annotated[Any, Depends(factory, scope=scope)]
        )
        for number, factory, scope in needs
    ]
    return inspect.Signature([*first, *asked])


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 7))):
        scope = draw(st.sampled_from(["call", "app"]))
        allowed = [one for one in range(number) if scope == "call" or nodes[one].scope == "app"]
        needs = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=3)) if allowed else []
        fails = draw(st.lists(st.integers(1, 6), max_size=2)) if scope == "call" else []
        breaks = scope == "call" and draw(st.integers(0, 5)) == 0
        kind = draw(st.sampled_from(["async", "plain", "class", "async generator", "generator"]))
        nodes.append(Node(kind, scope, tuple(sorted(needs)), tuple(fails), breaks))
    return nodes


def add_handler(
    app: App, world: World, asked: Sequence[int], kind: HandlerKind, fails: Sequence[int]
) -> list[int]:
    """A handler that looks at all that it is called with, and fails in some of its calls."""
    calls: list[int] = []

    def look(values: dict[str, Any]) -> None:
        with world.lock:
            calls.append(len(calls) + 1)
            found: dict[int, Made] = {}
            for value in values.values():
                world.check_usable(value)
                for one in value.all():
                    if found.setdefault(one.node, one) is not one:
                        world.wrong.append(f"{one.node} was made twice for a call")
            if len(calls) in fails:
                raise Refused("handler")

    async def awaiting(it: Any, **values: Any) -> None:
        look(values)
        await asyncio.sleep(0)

    def blocking(it: Any, **values: Any) -> None:
        look(values)

    async def yielding(it: Any, **values: Any) -> AsyncIterator[bytes]:
        yield b"1"
        look(values)
        yield b"2"

    handlers = {"async": awaiting, "batch": awaiting, "blocking": blocking, "generator": yielding}
    handler: Any = handlers[kind]
    annotation = Batch[bytes] if kind == "batch" else bytes
    record = inspect.Parameter("it", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
    needs = [(number, world.factories[number], world.nodes[number].scope) for number in asked]
    handler.__signature__ = signature_of(needs, record)
    app.incoming("orders")(handler)
    if kind == "generator":
        app.outgoing("invoices")(handler)
    return calls


@settings(max_examples=100)
@given(
    nodes=graphs(),
    data=st.data(),
    kind=st.sampled_from(["async", "blocking", "batch", "generator"]),
    concurrency=st.integers(1, 4),
    fails=st.lists(st.integers(1, 6), max_size=2),
)
def test_each_is_made_once_a_scope_and_ended_once_in_reverse(
    nodes: list[Node], data: st.DataObject, kind: HandlerKind, concurrency: int, fails: list[int]
) -> None:
    asked = data.draw(
        st.lists(st.sampled_from(range(len(nodes))), unique=True, min_size=1, max_size=3)
    )
    world = World(nodes)
    orders = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "ordering": "unordered",
        "concurrency": concurrency,
        "retry": {"max_attempts": 2, "backoff": "1ms"},
        "failure_strategy": "ignore",
        "batch_max_records": 2,
    }
    app = App({"incoming": {"orders": orders}, "outgoing": {"invoices": {}}})
    calls = add_handler(app, world, asked, kind, fails)

    async def main() -> None:
        broker = MemoryBroker(partitions=1)
        async with TestApp(app, broker=broker) as test:
            for number in range(6):
                await test.send("orders", str(number))
            await test.settled(60)
            assert test.committed("orders")["orders", 0] == 6  # type: ignore[index]
        await broker.close()

    # Threads take real time.
    asyncio.run(main())
    needed, further = set[int](), list(asked)
    while further:
        if (number := further.pop()) not in needed:
            needed.add(number)
            further += nodes[number].needs
    assert world.wrong == []
    counts = Counter(value.node for value in world.made)
    assert set(counts) <= needed
    for number in needed:
        if nodes[number].scope == "app":
            assert counts[number] == 1
        else:
            assert counts[number] >= len(calls) or kind == "batch"
    for value in world.made:
        assert value.ends == (nodes[value.node].kind in ENDED)
