"""What is known of one Spark session, from its opening to its end."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka.spark.session.seam import Session

DRIVER = "Spark's driver (java)"
ENDED = f"{DRIVER} has ended"
STARTING = "Spark is starting"


class OpenSession:
    """One session and what the looks at it have found.

    Attributes:
        trouble: Why no job should start, according to the last look.
        troubled_since: On the loop's clock; None: it is not in trouble.
        troubles: How many looks have found it in trouble.
        looks: How many looks have been answered.
        hurry: Set when somebody cannot wait for the next look.
        hangs: The driver has not answered in time.
        doubt: Why it is uncertain that a job would run; a small job is tried until it works.
        doubted: Set while there is a doubt.
        ended_for: Why we end it though its driver lives; None: we do not.
        was_ready: It has been ready at least once.
        running: The jobs on it, including those left behind.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.trouble: str | None = None
        self.troubled_since: float | None = None
        self.troubles = 0
        self.looks = 0
        self.hurry = asyncio.Event()
        self.hangs = False
        self.doubt: str | None = STARTING
        self.doubted = asyncio.Event()
        self.doubted.set()
        self.ended_for: str | None = None
        self.was_ready = False
        self.running: set[Any] = set()

    @property
    def is_over(self) -> bool:
        """Whether nothing runs on it any more, or soon will not."""
        return self.ended_for is not None or self.session.has_ended()

    @property
    def is_ready(self) -> bool:
        """Whether a job would run at once."""
        return self.looks > 0 and self.trouble is None and self.doubt is None and not self.is_over

    @property
    def reason(self) -> str:
        """Why it is not ready."""
        if self.is_over:
            return self.ended_for or self.trouble or ENDED
        return self.trouble or self.doubt or STARTING

    async def looked_at(self) -> None:
        """Return when it has turned out to be over, or a look that begins from now on finds it well."""
        one_is_under_way = self.looks + 1
        self.hurry.set()
        while not self.is_over and (self.looks <= one_is_under_way or self.trouble):  # noqa: ASYNC110 - a process ends
            await asyncio.sleep(0.02)

    def note(self, trouble: str | None, since: float) -> None:
        """Keep what a look has found."""
        self.trouble = trouble
        if trouble is None:
            self.troubled_since = None
        else:
            self.troubles += 1
            self.troubled_since = since if self.troubled_since is None else self.troubled_since

    def put_in_doubt(self, reason: str) -> None:
        """No job starts until a small one has worked."""
        self.doubt = reason
        self.doubted.set()

    def trust(self) -> None:
        """A small job has worked."""
        self.doubt = None
        self.doubted.clear()

    async def jobs_have_ended(self) -> None:
        """Return when no job runs on it."""
        while self.running:  # noqa: ASYNC110 - bounded by the caller
            await asyncio.sleep(0.02)
