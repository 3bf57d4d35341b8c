"""Times of Protobuf, which have nanoseconds, as Python's, which have microseconds. Pure.

A time with a fraction of a microsecond keeps it in an attribute, so that it can be written back
unchanged. What is calculated from such a time is an ordinary one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

_MICROSECOND = timedelta(microseconds=1)
_NS_IN_US = 1_000
_ZONE = re.compile(r"(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})\s*\Z")


class NanosecondDatetime(datetime):
    """A datetime that also has nanoseconds.

    Attributes:
        nanosecond: After the microseconds, 1 to 999, as in pandas.Timestamp.
    """

    # Of what replace() returns, which is of this class.
    nanosecond = 0

    def __new__(cls, *given: Any, **named: Any) -> Any:
        # Python makes the results of arithmetic with the class: they are ordinary ones.
        return datetime(*given, **named)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _datetime, (datetime.combine(self.date(), self.timetz()), self.nanosecond)


class NanosecondTimedelta(timedelta):
    """A timedelta that also has nanoseconds.

    Attributes:
        nanoseconds: After the microseconds; -999 to 999, with the sign of the whole.
    """

    nanoseconds = 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _timedelta, (timedelta(self.days, self.seconds, self.microseconds), self.nanoseconds)


def datetime_of(timestamp: Any, exact: bool) -> datetime:
    """A ``Timestamp`` in UTC. What a datetime cannot hold is cut, or with *exact* kept.

    ValueError or OverflowError: it is not between the years 1 and 9999.
    """
    found: datetime = timestamp.ToDatetime(tzinfo=UTC)
    rest = timestamp.nanos % _NS_IN_US
    return _datetime(found, rest) if exact and rest else found


def timedelta_of(duration: Any, exact: bool) -> timedelta:
    """A ``Duration``. What a timedelta cannot hold is cut, or with *exact* kept."""
    found: timedelta = duration.ToTimedelta()
    if not exact or not duration.nanos % _NS_IN_US:
        return found
    return _timedelta(found, duration.ToNanoseconds() - found // _MICROSECOND * _NS_IN_US)


def has_zone(value: datetime | str) -> bool:
    """Whether a datetime is aware, or its text ends with a zone: what has none names no moment."""
    if isinstance(value, str):
        return _ZONE.search(value) is not None
    return value.utcoffset() is not None


def write_datetime(timestamp: Any, value: datetime) -> None:
    """Set a ``Timestamp`` to an aware datetime, and to its nanoseconds if it has any, as
    pandas.Timestamp has.
    """
    timestamp.FromDatetime(value)
    timestamp.nanos += getattr(value, "nanosecond", 0)


def json_time(value: datetime) -> str:
    """An aware datetime as Protobuf's JSON has it, with its nanoseconds if it has any."""
    from google.protobuf.timestamp_pb2 import Timestamp

    made = Timestamp()
    write_datetime(made, value)
    shown: str = made.ToJsonString()
    return shown


def write_timedelta(duration: Any, value: timedelta) -> None:
    """Set a ``Duration`` to a timedelta, and to its nanoseconds if it has any, as pandas.Timedelta
    has.
    """
    whole = timedelta(value.days, value.seconds, value.microseconds)
    duration.FromNanoseconds(whole // _MICROSECOND * _NS_IN_US + getattr(value, "nanoseconds", 0))


def _datetime(value: datetime, nanosecond: int) -> datetime:
    made = datetime.__new__(
        NanosecondDatetime,
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        value.tzinfo,
        fold=value.fold,
    )
    made.nanosecond = nanosecond
    return made


def _timedelta(value: timedelta, nanoseconds: int) -> timedelta:
    made = NanosecondTimedelta(value.days, value.seconds, value.microseconds)
    made.nanoseconds = nanoseconds
    return made
