"""Members of this process that have stopped while their group could not be told that they leave."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.consumer.membership.group_parts import GroupRequests
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import BrokerError

WAITS = Backoff(0.1, 2.0)
"""Between requests that are refused or not answered."""
MOST_KEPT = 100
"""So many members are remembered, for a group whose coordinator stays away for long."""
MOVED_CODES = frozenset({15, 16})
"""COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: another broker has to be told."""
UNHEARD_CODES = MOVED_CODES | {14}
"""The same and COORDINATOR_LOAD_IN_PROGRESS. After any other answer there is nothing to tell."""


class LeaveRequest(NamedTuple):
    """How a member says that it leaves."""

    api: Api
    # The fields of the request, or a function that makes them for a version.
    values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]


class MembersLeftBehind:
    """The members of one group that have stopped in this process, and that the group still counts.

    A group waits for such a member until its session is over, 45 s by default, and nobody gets its
    partitions before that. After an outage, in which a client was replaced or a channel was
    restarted, that is too long. So the next member of this process says it for the ones before it.
    """

    def __init__(self) -> None:
        # The sessions of the oldest ones end first.
        self._unheard: deque[LeaveRequest] = deque(maxlen=MOST_KEPT)

    def __bool__(self) -> bool:
        return bool(self._unheard)

    async def leave(self, leaving: LeaveRequest, requests: GroupRequests) -> None:
        """Tell the group that a member leaves, in one attempt. Remember it if that fails.

        Raises nothing but cancellation.
        """
        deadline_s = requests.leave_deadline_s()
        try:
            async with asyncio.timeout(deadline_s):
                is_heard = await _is_heard(leaving, requests, deadline_s=deadline_s)
        except TimeoutError:
            is_heard = False
        if not is_heard:
            self._unheard.append(leaving)

    async def tell(self, requests: GroupRequests) -> None:
        """Tell the group of all members left behind. Tries again until it has heard."""
        waits = Waits(WAITS)
        while self._unheard:
            leaving = self._unheard[0]
            if not await _is_heard(leaving, requests):
                await asyncio.sleep(waits.next_s())
                continue
            waits.progressed()
            # Another member may have told it meanwhile.
            if leaving in self._unheard:
                self._unheard.remove(leaving)


async def _is_heard(leaving: LeaveRequest, requests: GroupRequests, **named: float) -> bool:
    """Send a request, and return whether the coordinator has taken it in."""
    try:
        answer = await requests.ask(leaving.api, leaving.values, **named)
    except MessageDecodeError:
        # The broker has got the request.
        return True
    except BrokerError:
        return False
    code = answer["error_code"]
    if code in MOVED_CODES:
        requests.coordinator_moved()
    return code not in UNHEARD_CODES
