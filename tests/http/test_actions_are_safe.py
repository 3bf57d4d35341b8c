"""Whatever an operator does, the committed position never passes an unsettled record."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import Message, TopicPartition
from tests.app.helpers import committed, in_virtual_time, make_app, make_broker, running, until

TOKEN = "s3cret-T0ken"
RECORDS = 24

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["pause", "resume", "stop", "start", "restart"]), st.just({})),
        st.tuples(
            st.just("skip"),
            st.fixed_dictionaries({"partition": st.integers(0, 1), "offset": st.integers(0, 11)}),
        ),
        # Back only: a seek forward jumps over records, which is what it is for.
        st.tuples(
            st.just("seek"),
            st.fixed_dictionaries({"all": st.just(True), "offset": st.just("beginning")}),
        ),
        st.tuples(st.just("wait"), st.integers(0, 3)),
        st.tuples(st.just("bad"), st.just({})),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(
    steps=steps,
    ordering=st.sampled_from(["partition", "key", "unordered"]),
    concurrency=st.sampled_from([1, 3]),
)
def test_no_action_makes_the_position_pass_an_unsettled_record(
    steps: list[tuple[str, Any]], ordering: str, concurrency: int
) -> None:
    """Each commit is checked against what has been handled or skipped by then."""

    @in_virtual_time
    async def play() -> None:
        app = make_app(
            None,
            commit_interval="50ms",
            ordering=ordering,
            concurrency=concurrency,
            drain_timeout="100ms",
        )
        app.configure(overrides={"http": {"token": TOKEN}})
        done: set[tuple[int, int]] = set()
        is_bad = False

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            nonlocal is_bad
            await asyncio.sleep(0.2)
            if is_bad:
                is_bad = False
                raise ValueError
            done.add((message.partition, message.offset))

        broker = make_broker(2)
        passed: list[str] = []

        def check(entry: Any) -> None:
            for place, stored in entry.offsets.items():
                missing = [
                    offset
                    for offset in range(stored.offset)
                    if (place.partition, offset) not in done
                ]
                if missing:
                    passed.append(f"{place} was committed at {stored.offset} without {missing}")

        broker.watch_commits("billing", check)
        transport = httpx.ASGITransport(app=app.asgi)
        bearer = {"authorization": f"Bearer {TOKEN}"}
        async with (
            running(app, broker=broker) as test,
            httpx.AsyncClient(
                transport=transport, base_url="http://service", headers=bearer
            ) as client,
        ):
            sent = 0
            for action, given in steps:
                # Most of them wait in the lanes while the actions are taken.
                for _ in range(12):
                    if sent < RECORDS:
                        await test.send(
                            "orders", b"%d" % sent, key=str(sent % 5), partition=sent % 2
                        )
                        sent += 1
                if action == "wait":
                    await asyncio.sleep(given * 0.15)
                elif action == "bad":
                    is_bad = True
                else:
                    body = dict(given)
                    if action in ("skip", "seek"):
                        body["topic"] = "orders"
                    answer = await client.post(f"/api/channels/orders/{action}", json=body)
                    assert answer.status_code in (200, 202, 409), answer.text
                    if action == "skip" and answer.status_code == 200:
                        done.add((body["partition"], body["offset"]))
            is_bad = False
            channel = app.channel("orders")
            channel.resume("paused by an operator")
            while True:
                await channel.start()
                await asyncio.sleep(1)
                if channel.facts().state == "running":
                    break
            ends = {number: broker.end(TopicPartition("orders", number)) for number in (0, 1)}
            await until(
                lambda: all(committed(test, number) == end for number, end in ends.items() if end)
            )
        await broker.close()
        assert passed == []

    play()
