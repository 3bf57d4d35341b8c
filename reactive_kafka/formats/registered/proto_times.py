"""Converts Protobuf's times, which have nanoseconds, to Python's, which have microseconds. Pure.

A time keeps its nanoseconds in an attribute, so that it can be written back unchanged. A time that
is calculated from it is an ordinary one.
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
        nanosecond: The nanoseconds after the microseconds, 1 to 999, as in pandas.Timestamp.
    """

    # What replace() returns is of this class, too, and has no nanoseconds.
    nanosecond = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Python calls the class for the results of arithmetic, which are ordinary datetimes.
        return datetime(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _datetime, (datetime.combine(self.date(), self.timetz()), self.nanosecond)


class NanosecondTimedelta(timedelta):
    """A timedelta that also has nanoseconds.

    Attributes:
        nanoseconds: Those after the microseconds, -999 to 999, with the sign of the whole.
    """

    nanoseconds = 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _timedelta, (timedelta(self.days, self.seconds, self.microseconds), self.nanoseconds)


def datetime_of(timestamp: Any, exact: bool) -> datetime:
    """Return the moment of a ``Timestamp`` in UTC.

    Args:
        timestamp: The message.
        exact: Keep its nanoseconds. Otherwise they are cut off.

    Raises:
        ValueError, OverflowError: It is not between the years 1 and 9999.
    """
    moment: datetime = timestamp.ToDatetime(tzinfo=UTC)
    rest = timestamp.nanos % _NS_IN_US
    if exact and rest:
        return _datetime(moment, rest)
    return moment


def timedelta_of(duration: Any, exact: bool) -> timedelta:
    """Return the length of a ``Duration``.

    Args:
        duration: The message.
        exact: Keep its nanoseconds. Otherwise they are cut off.
    """
    length: timedelta = duration.ToTimedelta()
    if not exact or not duration.nanos % _NS_IN_US:
        return length
    return _timedelta(length, duration.ToNanoseconds() - length // _MICROSECOND * _NS_IN_US)


def has_zone(value: datetime | str) -> bool:
    """Return whether a datetime, or the text of one, has a zone. Without one it names no moment."""
    if isinstance(value, str):
        return _ZONE.search(value) is not None
    return value.utcoffset() is not None


def write_datetime(timestamp: Any, value: datetime) -> None:
    """Set a ``Timestamp`` to an aware datetime.

    The nanoseconds are kept, also those of a pandas.Timestamp.
    """
    timestamp.FromDatetime(value)
    timestamp.nanos += getattr(value, "nanosecond", 0)


def json_time(value: datetime) -> str:
    """Return an aware datetime, with its nanoseconds, in the form of Protobuf's JSON."""
    from google.protobuf.timestamp_pb2 import Timestamp

    timestamp = Timestamp()
    write_datetime(timestamp, value)
    text: str = timestamp.ToJsonString()
    return text


def write_timedelta(duration: Any, value: timedelta) -> None:
    """Set a ``Duration`` to a timedelta.

    The nanoseconds are kept, also those of a pandas.Timedelta.
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
