"""What was reported to be wrong with a client of a channel, and is not over yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactive_kafka.observe.events.reading import PositionsUnknown


@dataclass(slots=True)
class OpenProblems:
    """The problems of one client whose beginning was reported, and whose end was not.

    They are kept through the restarts of the channel. A problem may end while the channel is down,
    and its end has to be reported, too.
    """

    # Topics that are missing, or may not be read.
    missing_topics: set[str] = field(default_factory=set)
    # Leaders of the client's partitions do not answer.
    leaders_away: bool = False
    # The group has not answered for a whole session timeout.
    session_over: bool = False
    # What was reported last of positions that are not known. None: all were known since.
    positions: PositionsUnknown | None = None
