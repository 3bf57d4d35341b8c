"""A wall clock that is wrong, jumps or stands still: what is measured in seconds is measured by the
other clock.
"""

from __future__ import annotations

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reactive_kafka import Message
from reactive_kafka.events import RecordPoisoned
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from tests.app.helpers import Recorder, make_app, make_broker, now, running, send, tp, until

DELAY_S = 10.0
LIMIT_S = 60.0
# A DST change, where somebody sets the clock to local time.
HOUR_S = 3600.0
IN_1970, IN_2023, IN_2099 = 0.0, 1_700_000_000.0, 4_070_908_800.0

jumps = st.lists(
    st.tuples(
        st.floats(0.0, 50.0), st.sampled_from([HOUR_S, -HOUR_S, 1.0, -1.0, 24 * HOUR_S, -IN_2023])
    ),
    max_size=4,
)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([IN_1970, IN_2023, IN_2099]), jumps, st.booleans())
@example(IN_1970, [], False)
@example(IN_2023, [(5.0, -IN_2023)], False)
@example(IN_2023, [(5.0, HOUR_S), (30.0, HOUR_S)], False)
@example(IN_2023, [(5.0, -HOUR_S), (30.0, -HOUR_S)], False)
@example(IN_2023, [], True)
def test_records_become_poison_in_time_and_delayed_ones_come_back_whatever_the_wall_clock_does(
    begins: float, jumps: list[tuple[float, float]], is_frozen: bool
) -> None:
    """Row D14 of the faults."""

    async def main(clock: FakeClock) -> None:
        recorder, calls, loop, broker = (
            Recorder(),
            list[float](),
            asyncio.get_running_loop(),
            make_broker(2),
        )
        app = make_app(
            recorder,
            failure_strategy="delayed-retry-topic",
            delayed_retry={"topics": [f"orders_retry_{DELAY_S * 1000:.0f}"]},
            commit_interval="100ms",
            on_poison="warn",
            concurrency=4,
            unprocessed_record_max_age=f"{LIMIT_S:g}s",
        )

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            if message.payload == b"stuck":
                await asyncio.Event().wait()
            calls.append(now())
            if len(calls) == 1:
                raise ValueError("not yet")

        async with running(app, broker=broker) as test:
            for at, seconds in jumps:
                loop.call_later(at, clock.jump_wall, seconds)
            if is_frozen:
                for second in range(1, 100):
                    loop.call_later(second, clock.jump_wall, -1.0)
            wall, began = clock.wall(), now()
            await send(test, b"stuck", partition=0)
            await send(test, b"again", partition=1)
            await until(lambda: len(calls) == 2, 60)
            waited_s = calls[1] - calls[0]
            # No record waits longer than its delay.
            assert waited_s < DELAY_S + 1
            if not any(seconds > 0 for _, seconds in jumps):
                assert waited_s > DELAY_S - 0.5
            await until(lambda: test.broker.committed("billing")[tp(1)].offset == 1)
            await until(lambda: recorder.of(RecordPoisoned), 100)
            (poison,) = recorder.of(RecordPoisoned)
            assert LIMIT_S <= now() - began < LIMIT_S + 1.5
            assert LIMIT_S <= poison.age_s < LIMIT_S + 1.5
            took_s = now() - began
            moved_s = sum(by for at, by in jumps if at < took_s) - is_frozen * int(took_s)
            assert abs(clock.wall() - wall - took_s - moved_s) < 0.1, (
                "the wall clock did not do what it should"
            )

    run_in_virtual_time(main, clock=FakeClock(wall=begins))
