"""What a broker remembers of the fetches of one connection, so that each need name only what has
changed. No I/O.

Source: KIP-227, and Kafka's ``FetchSessionHandler`` and ``FetchSession``.
"""

from __future__ import annotations

from typing import NamedTuple

Part = tuple[str, int, int, int]
"""Topic, partition, offset, most bytes."""

LAST_EPOCH = 2**31 - 1
FULL = 0
"""The epoch of a fetch that names all of its partitions, and asks for a session of them."""

ID_NOT_FOUND = 70
"""The error of a broker that has let go of the session. There is nothing to close."""


class Asked(NamedTuple):
    """What one fetch says; *named*: those of its partitions that are in the request, None where
    that is all.
    """

    session_id: int
    epoch: int
    named: frozenset[Part] | None
    forgotten: tuple[tuple[str, int], ...] = ()


class FetchSession:
    """The client's end of it, on one connection.

    The broker has of each partition what was asked for last, and what it has answered. It leaves
    out of an answer what has no records, no error, and the same end and beginning. So an answer
    that nobody has read may have told an end that it does not tell again: then everything is asked
    for anew, as after an error. Naming the old session closes it; the broker has not many.
    """

    def __init__(self) -> None:
        # 0: none.
        self._id = 0
        # Of the next fetch.
        self._epoch = FULL
        # What the broker has, once it has the last fetch.
        self._held: frozenset[Part] = frozenset()
        # The one that is not answered.
        self._asked: Asked | None = None

    def ask(self, wanted: frozenset[Part], *, anew: bool = False) -> Asked:
        """The next fetch; *anew*: the answer is to tell of all partitions, as the first one
        does.
        """
        if anew or self._asked is not None:
            self._epoch = FULL
        if self._epoch == FULL:
            asked = Asked(self._id, FULL, None)
        else:
            named = wanted - self._held
            gone = {one[:2] for one in self._held - wanted} - {one[:2] for one in named}
            asked = Asked(self._id, self._epoch, named, tuple(sorted(gone)))
        self._asked = asked
        self._held = wanted
        return asked

    def answered(self, asked: Asked, error: int, session_id: int) -> None:
        """The fetch was answered, and what the answer says of partitions will be read. Not told of
        one that is lost.
        """
        if asked is not self._asked:
            return
        self._asked = None
        if error:
            self._id = 0 if error == ID_NOT_FOUND else self._id
            self._epoch = FULL
        elif session_id == 0 or (self._epoch != FULL and session_id != self._id):
            # It has no room, or has closed it.
            self._id = session_id
            self._epoch = FULL
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1

    def stands(self, asked: Asked, session_id: int) -> bool:
        """Whether *asked*, which was answered by that session with nothing new, would be asked
        again as it was.
        """
        return (
            asked is self._asked
            and session_id == asked.session_id
            and not (asked.named or asked.forgotten)
        )

    def again(self, asked: Asked) -> int:
        """It is: the epoch that it is sent under."""
        self.answered(asked, 0, asked.session_id)
        self._asked = asked
        return self._epoch
