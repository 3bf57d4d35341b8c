"""What happened in a run, as one list of events. The place of an event in the list is its time: no
two are at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, NamedTuple

Partition = tuple[str, int]

Kind = Literal[
    # A handler got a record; call: which call of a handler, attempt: of in-place retries.
    "begin",
    # It is through; note: ok, raised (another attempt follows), failed (none follows), cancelled,
    # later (it asked for another call; text: what waits, and for how many seconds).
    "end",
    # The other handler of a broadcast is through with it.
    "aside",
    # The application settles a record itself.
    "ack",
    # The application said that it settled a failed record without handling it.
    "ignored",
    # A copy of the record stands in the dead-letter topic.
    "letter",
    # A copy of the record stands in a retry topic.
    "copy",
    # A poll brought records, or a gap, offset to until; count: how many.
    "fetched",
    # A client told the application; offset: the generation.
    "assigned",
    # A client told the application that a partition is to go: what waits there waits no longer.
    "revoking",
    # The application has let go.
    "revoked",
    # A client has taken in an assignment, perhaps of no partition; offset: the generation.
    "rebalanced",
    # The application asked for a commit; call: which request.
    "send",
    # It was told what became of it; note: ok, failed, unknown.
    "answer",
    # The broker (or the store, then who: whose row) has it; call: the request that brought it.
    "commit",
    # That commit stored a plan, too: offset and until are its range.
    "planned",
    # A Spark function began on a range, offset to until; note: the range's id, ids: those it
    # supersedes.
    "run",
    # That run did something to the outside; call: which run.
    "effect",
    # It does nothing any more; note: ok, bad, code, worker, lost alone, lost beside, cluster,
    # timeout,
    "over",
    # cancelled, stuck (it was given up)
    # The application says that it lets go of work that does not end in time; note: how long it
    # waited.
    "abandoned",
    # A client of the application leaves the group.
    "left",
    # The application supplied a string for the group, by the ack of a record (offset) or for the
    # partition.
    "said",
    # The store has a row of a new owner; who: whose, token: the owner's, state and text: of the
    # row.
    "claim",
    # The store has refused a row.
    "refused",
    # A transaction has written the record into the user's table.
    "row",
    # A handler asked for the state of its partition.
    "got",
    # It set one.
    "set",
    # Kafka has stored a position beside that of the store.
    "beside",
    # The record is not in the log any more; note: retention.
    "compacted",
    # Somebody goes on behind the record on purpose.
    "skipped",
    # The application chose a position by policy (text: which end of the log, count: how many
    # offsets it says.
    "reset",
    # that it passed), or (note: seek) because it was told to
    # Retention has moved the start of the log there.
    "trimmed",
    # A partition that was not there at first.
    "appeared",
    # The application has paused the partition, or (no partition) the channel; note: the reason.
    "paused",
    # It takes that back.
    "resumed",
    # The application found a record overdue.
    "poison",
    # A channel has failed.
    "failed",
    # A failed channel came back by itself.
    "restarted",
    # Something was done to the application or the broker; note: what.
    "fault",
    # That is over.
    "calm",
    # An application came (note: start) or went (note: leave, gone, crash)
    "member",
    # note: a probe that is DOWN.
    "health",
    # Readiness is another; note: UP, or DOWN and why.
    "ready",
    # No fault follows, and everything that was held up goes on.
    "healed",
]


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        at: Virtual time, in seconds.
        who: The application, numbered anew with each of its starts; "" for the broker and the
            scenario.
        client: Which of the application's clients; of what passes between them, and of a call for
            a record that it has fetched.
        until: Where a range ends.
        ids: Of ranges.
        token: Of the owner of a row in a store.
        state: As a row of a store has it, or as a handler got or set it; None: there is none.
        text: What stands beside a position, or the string that the application supplied; of a
            begin: what the handler found in a variable of its context that only others set.
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
