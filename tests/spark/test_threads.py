import asyncio
import threading

import pytest

from reactive_kafka.spark.session.threads import CallThread


async def test_calls_run_one_after_the_other_in_one_daemon_thread() -> None:
    worker, seen = CallThread("test"), []

    def note(number: int) -> None:
        seen.append((number, threading.current_thread()))

    await asyncio.gather(*(worker.submit(lambda number=number: note(number)) for number in range(5)))
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    (thread,) = {thread for _, thread in seen}
    assert thread.daemon
    worker.close()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration(), SystemExit(1), KeyboardInterrupt()])
async def test_whatever_a_call_raises_is_its_outcome_and_the_thread_goes_on(error: BaseException) -> None:
    worker = CallThread("test")

    def fail() -> None:
        raise error

    assert (await worker.submit(fail)).error is error
    assert (await worker.submit(lambda: 1)).get() == 1
    worker.close()


def test_a_call_that_ends_after_its_loop_is_closed_disturbs_nobody() -> None:
    worker, go_on, ended = CallThread("test"), threading.Event(), threading.Event()

    async def leave_it_running() -> None:
        worker.submit(lambda: go_on.wait(10))

    asyncio.run(leave_it_running())
    go_on.set()

    async def use_it_again() -> None:
        await worker.submit(ended.set)

    asyncio.run(use_it_again())
    assert ended.is_set()
    worker.close()


async def test_cancelling_the_wait_leaves_the_call_alone() -> None:
    worker, go_on = CallThread("test"), threading.Event()
    future = worker.submit(lambda: go_on.wait(10))
    future.cancel()
    go_on.set()
    assert (await worker.submit(lambda: "next")).get() == "next"
    worker.close()
