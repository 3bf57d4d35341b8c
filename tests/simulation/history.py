"""What happened in a run, as one list of events. The place of an event in the list is its time: no two are at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, NamedTuple

Partition = tuple[str, int]

Kind = Literal[
    "begin",  # a handler got a record; call: which call of a handler, attempt: of in-place retries
    "end",  # it is through; note: ok, raised (another attempt follows), failed (none follows), cancelled
    "aside",  # the other handler of a broadcast is through with it
    "ack",  # the application settles a record itself
    "ignored",  # the application said that it settled a failed record without handling it
    "letter",  # a copy of the record stands in the dead-letter topic
    "copy",  # a copy of the record stands in a retry topic
    "fetched",  # a poll brought records, or a gap, offset to until; count: how many
    "assigned",  # a client told the application; offset: the generation
    "revoked",  # the application has let go
    "send",  # the application asked for a commit; call: which request
    "answer",  # it was told what became of it; note: ok, failed, unknown
    "commit",  # the broker (or the store, then who: whose row) has it; call: the request that brought it
    "planned",  # that commit stored a plan, too: offset and until are its range
    "run",  # a Spark function began on a range, offset to until; note: the range's id, ids: those it supersedes
    "effect",  # that run did something to the outside; call: which run
    "over",  # it does nothing any more; note: ok, bad, code, worker, lost alone, lost beside, cluster, timeout,
    # cancelled, stuck (it was given up)
    "abandoned",  # the application says that it lets go of work that does not end in time; note: how long it waited
    "left",  # a client of the application leaves the group
    "said",  # the application supplied a string for the group, by the ack of a record (offset) or for the partition
    "claim",  # the store has a row of a new owner; who: whose, token: the owner's, state and text: of the row
    "refused",  # the store has refused a row
    "row",  # a transaction has written the record into the user's table
    "got",  # a handler asked for the state of its partition
    "set",  # it set one
    "beside",  # Kafka has stored a position beside that of the store
    "compacted",  # the record is not in the log any more; note: retention
    "skipped",  # somebody goes on behind the record on purpose
    "reset",  # the application chose a position by policy (text: which end of the log, count: how many offsets it says
    # that it passed), or (note: seek) because it was told to
    "trimmed",  # retention has moved the start of the log there
    "appeared",  # a partition that was not there at first
    "paused",  # the application has paused the partition, or (no partition) the channel; note: the reason
    "resumed",  # it takes that back
    "poison",  # the application found a record overdue
    "failed",  # a channel has failed
    "restarted",  # a failed channel came back by itself
    "fault",  # something was done to the application or the broker; note: what
    "calm",  # that is over
    "member",  # an application came (note: start) or went (note: leave, gone, crash)
    "health",  # note: a probe that is DOWN
    "ready",  # readiness is another; note: UP, or DOWN and why
    "healed",  # no fault follows, and everything that was held up goes on
]


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        at: Virtual time, in seconds.
        who: The application, numbered anew with each of its starts; "" for the broker and the scenario.
        client: Which of the application's clients; of what passes between them.
        until: Where a range ends.
        ids: Of ranges.
        token: Of the owner of a row in a store.
        state: As a row of a store has it, or as a handler got or set it; None: there is none.
        text: What stands beside a position, or the string that the application supplied; of a begin: what the handler
            found in a variable of its context that only others set.
        count: How many records or offsets; -1: nobody said.
    """

    at: float
    kind: Kind
    who: str = ""
    tp: Partition = ("", -1)
    offset: int = -1
    note: str = ""
    call: int = 0
    attempt: int = 0
    client: int = 0
    until: int = -1
    ids: tuple[str, ...] = ()
    token: int = 0
    state: str | None = None
    text: str = ""
    count: int = -1

    def __str__(self) -> str:
        parts = [f"{self.at:9.3f}", f"{self.who or '-':4}", self.kind]
        if self.tp[1] >= 0:
            parts.append(f"{self.tp[0]}-{self.tp[1]}")
        if self.offset >= 0:
            parts.append(f"@{self.offset}" if self.until < 0 else f"[{self.offset}, {self.until})")
        if self.attempt > 1:
            parts.append(f"attempt {self.attempt}")
        if self.client > 1:
            parts.append(f"client {self.client}")
        if self.note:
            parts.append(self.note)
        if self.kind in ("run", "effect", "over"):
            parts.append(f"(run {self.call})")
        if self.ids:
            parts.append("instead of " + " ".join(self.ids))
        if self.token:
            parts.append(f"token {self.token}")
        if self.state is not None:
            parts.append(f"state {self.state}")
        if self.count >= 0:
            parts.append(f"({self.count})")
        if self.text:
            parts.append(repr(self.text if len(self.text) < 60 else self.text[:57] + "..."))
        return " ".join(parts)


def digest(events: Iterable[Event]) -> str:
    """Equal for equal histories, in every process."""
    whole = hashlib.sha256()
    for event in events:
        whole.update(repr(tuple(event)).encode())
    return whole.hexdigest()
