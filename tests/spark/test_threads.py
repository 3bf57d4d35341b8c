import asyncio
import threading

import pytest

from reactive_kafka.spark.session.blocking import CallThreads


async def test_calls_one_after_the_other_run_in_one_daemon_thread() -> None:
    threads, seen = CallThreads("test"), []
    for _ in range(5):
        seen.append((await threads.submit(threading.current_thread)).get())
    (thread,) = set(seen)
    assert (thread.daemon, thread.name) == (True, "test-0")
    threads.close()
    thread.join(5)
    assert not thread.is_alive()


async def test_each_of_several_calls_at_once_has_a_thread_of_its_own() -> None:
    threads, all_there = CallThreads("test"), threading.Barrier(3)

    def meet() -> threading.Thread:
        all_there.wait(5)
        return threading.current_thread()

    results = await asyncio.gather(*(threads.submit(meet) for _ in range(3)))
    assert len({result.get() for result in results}) == 3
    threads.close()


@pytest.mark.parametrize(
    "error", [ValueError("x"), StopIteration(), SystemExit(1), KeyboardInterrupt()]
)
async def test_whatever_a_call_raises_is_its_outcome_and_the_thread_goes_on(
    error: BaseException,
) -> None:
    threads = CallThreads("test")

    def fail() -> None:
        raise error

    assert (await threads.submit(fail)).error is error
    assert (await threads.submit(lambda: threading.current_thread().name)).get() == "test-0"
    threads.close()


def test_a_call_that_ends_after_its_loop_is_closed_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, go_on, ended = CallThreads("left"), threading.Event(), threading.Event()
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    async def leave_it_running() -> None:
        threads.submit(lambda: go_on.wait(10) and ended.set())

    asyncio.run(leave_it_running())
    go_on.set()
    assert ended.wait(10)

    (thread,) = (one for one in threading.enumerate() if one.name == "left-0")
    threads.close()
    thread.join(5)
    assert not thread.is_alive()
    assert not raised


async def test_cancelling_the_wait_leaves_the_call_alone() -> None:
    threads, go_on, ended = CallThreads("test"), threading.Event(), threading.Event()
    future = threads.submit(lambda: go_on.wait(10) and ended.set())
    future.cancel()
    go_on.set()
    assert (await threads.submit(lambda: ended.wait(10))).get()
    threads.close()
