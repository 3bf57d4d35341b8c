"""Tasks that go wrong on purpose: the first wait of one, found by its name, raises, is cancelled,
or never ends.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any


class Odd(BaseException):
    """No ordinary exception."""


class Sabotage:
    """A task factory: the first task whose name fits *pattern* meets *error* in its first wait;
    None: it hangs there.

    Attributes:
        names: Of all tasks that were started.
        hit: The name of the task that it was done to.
    """

    def __init__(self, pattern: str, error: BaseException | None) -> None:
        self._pattern = re.compile(pattern)
        self._error = error
        self.names: list[str] = []
        self.hit: str | None = None

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **named: Any,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(self._run(work), loop=loop, **named)
        # Cancelled before its first step, it was not begun.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _run(self, work: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self.names.append(task.get_name())
        if self.hit is not None or not self._pattern.fullmatch(task.get_name()):
            return await work
        self.hit = task.get_name()
        return await self._spoilt(work)

    @coroutine
    def _spoilt(self, work: Any) -> Generator[Any, Any, Any]:
        try:
            waited_for = work.send(None)
        except StopIteration as end:
            # It does not wait at all.
            return end.value
        if waited_for is not None:
            # Nobody waits for it any more.
            waited_for._asyncio_future_blocking = False
        error = self._error
        if error is None:
            try:
                yield from asyncio.Event().wait().__await__()
            except BaseException as ended:
                error = ended
        assert error is not None
        return (yield from _thrown(work, error))


def _thrown(work: Any, error: BaseException) -> Generator[Any, Any, Any]:
    """Go on with *work*, whose wait raises *error*, to its end."""
    try:
        waited_for = work.throw(error)
        while True:
            try:
                sent = yield waited_for
            except BaseException as thrown:
                waited_for = work.throw(thrown)
            else:
                waited_for = work.send(sent)
    except StopIteration as end:
        return end.value
