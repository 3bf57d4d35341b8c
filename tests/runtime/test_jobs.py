"""When the jobs of a partition begin and end, whatever their calls do meanwhile."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

from reactive_kafka import IncomingSettings
from reactive_kafka.runtime.jobs import Jobs
from reactive_kafka.tasks import Tasks
from reactive_kafka.testing import VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, now, tp, until
from tests.assignment.hooks import call_hooks_of, no_hooks
from tests.handlers.jobs import job_of_orders


@in_virtual_time
async def test_a_job_that_waits_for_the_end_of_an_earlier_call_is_not_called_after_its_own_end() -> (
    None
):
    loop, go_on, called = asyncio.get_running_loop(), asyncio.Event(), list[float]()
    assert isinstance(loop, VirtualTimeLoop)
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="billing")
    failed = list[BaseException]()
    services: Any = SimpleNamespace(clock=loop.clock, observer=Recorder(), tasks=Tasks())

    async def job() -> None:
        called.append(now())
        await go_on.wait()

    jobs = Jobs([job_of_orders(job, 1.0)], services, copy_context(), failed.append)
    hooks = jobs.with_hooks(settings, no_hooks())
    (assigned,), (revoked,) = hooks.on_assigned, hooks.on_revoked
    call_hooks_of("a client")
    mine = frozenset({tp(0)})
    await assigned(mine)
    await until(lambda: called)
    # Two assignments end while the call of the first one runs.
    ends = [asyncio.create_task(revoked(mine, False))]
    await asyncio.sleep(1)
    await assigned(mine)
    await asyncio.sleep(2)
    ends.append(asyncio.create_task(revoked(mine, False)))
    await asyncio.sleep(1)
    go_on.set()
    await asyncio.gather(*ends)
    assert len(called) == 1
    assert failed == []
