"""A fetch session: the broker remembers the fetches of a connection, so each names only changes.

No I/O. Source: KIP-227, and Kafka's ``FetchSessionHandler`` and ``FetchSession``.
"""

from __future__ import annotations

from typing import NamedTuple

PartitionFetch = tuple[str, int, int, int]
"""Topic, partition, offset, most bytes."""

LAST_EPOCH = 2**31 - 1
FULL = 0
"""The epoch of a full fetch: it names all of its partitions, and asks for a new session."""

ID_NOT_FOUND = 70
"""The broker's error if it has dropped the session. Then there is none to close."""
INVALID_EPOCH = 71
"""The broker's error if it has not received the last fetch, or has another session of that id."""
SESSION_CODES = frozenset({ID_NOT_FOUND, INVALID_EPOCH})
"""The next fetch, a full one, follows at once."""


class SessionFetch(NamedTuple):
    """The session fields of one fetch.

    ``named``: the partitions that the request has to name; None: all of them. ``forgotten``: the
    partitions that are no longer fetched.
    """

    session_id: int
    epoch: int
    named: frozenset[PartitionFetch] | None
    forgotten: tuple[tuple[str, int], ...] = ()


class FetchSession:
    """The client's side of the session of one connection.

    The broker remembers, for each partition, what was asked for last and what it answered. It
    leaves partitions out of an answer if they have no records, no error, and the same beginning and
    end of the log. So an answer that was not read may have had an end that is never repeated.
    After a lost answer, as after an error, the next fetch is therefore a full one. It names the old
    session, which closes it: a broker has room for few.
    """

    def __init__(self) -> None:
        # 0: there is no session.
        self._id = 0
        # The epoch of the next fetch.
        self._epoch = FULL
        # The partitions that the broker knows, once it has received the last fetch.
        self._known: frozenset[PartitionFetch] = frozenset()
        # The fetch that is not answered yet.
        self._unanswered: SessionFetch | None = None

    def ask(self, wanted: frozenset[PartitionFetch], *, full: bool = False) -> SessionFetch:
        """Return the session fields of the next fetch.

        Args:
            wanted: The partitions to fetch.
            full: The answer has to have all partitions, like the first one.
        """
        if full or self._unanswered is not None:
            self._epoch = FULL
        if self._epoch == FULL:
            fetch = SessionFetch(self._id, FULL, None)
        else:
            named = wanted - self._known
            gone = {partition[:2] for partition in self._known - wanted} - {
                partition[:2] for partition in named
            }
            fetch = SessionFetch(self._id, self._epoch, named, tuple(sorted(gone)))
        self._unanswered = fetch
        self._known = wanted
        return fetch

    def answered(self, fetch: SessionFetch, error: int, session_id: int) -> None:
        """Continue the session after an answer whose partitions will be read.

        It is not called for an answer that is lost.
        """
        if fetch is not self._unanswered:
            return
        self._unanswered = None
        if error:
            self._id = 0 if error == ID_NOT_FOUND else self._id
            self._epoch = FULL
        elif session_id == 0 or (self._epoch != FULL and session_id != self._id):
            # The broker has no room for a session, or has closed it.
            self._id = session_id
            self._epoch = FULL
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1

    def would_repeat(self, fetch: SessionFetch, session_id: int) -> bool:
        """True if *fetch*, answered with nothing new, would be sent again unchanged."""
        return (
            fetch is self._unanswered
            and session_id == fetch.session_id
            and not (fetch.named or fetch.forgotten)
        )

    def repeat(self, fetch: SessionFetch) -> int:
        """Return the epoch under which *fetch* is sent again unchanged."""
        self.answered(fetch, 0, fetch.session_id)
        self._unanswered = fetch
        return self._epoch
