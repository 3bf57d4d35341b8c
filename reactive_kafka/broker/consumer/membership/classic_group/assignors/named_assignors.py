"""Assignors by their names, and users' own ones by ``module:object``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import cast

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import Assignor
from reactive_kafka.broker.consumer.membership.classic_group.assignors.cooperative_assignor import (
    CooperativeStickyAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.range_assignor import (
    RangeAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.round_robin_assignor import (
    RoundRobinAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.sticky_assignor import (
    StickyAssignor,
)
from reactive_kafka.errors import text_of
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.user_objects import load_object

KAFKA_ASSIGNORS: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
"""The assignors that Kafka's own clients have."""

DEFAULT_ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
"""The names that a member offers by default, the preferred one first.

Java's default is range and cooperative-sticky. librdkafka's and kafka-python's is range and
roundrobin, aiokafka's is roundrobin. A member with this list can join a group of any of them, and
any of them can join a group of ours. All prefer range where they have it, so the group's assignor
stays the same while members are replaced. The list is eager, because range is.
"""

_METHODS = ("assign", "user_data")
# A string in a request for the group.
_LONGEST_NAME = 2**15 - 1
_BY_NAME = {assignor.name: assignor for assignor in KAFKA_ASSIGNORS}


def assignors_named(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Return the assignors with these names, in the same order.

    Args:
        names: Names of Kafka's assignors, or ``module:object``: an assignor, or a class or function
            that makes one without arguments.

    Raises:
        FormatError: A name is unknown, an object cannot be loaded or is no assignor, or two
            assignors have the same name.
    """
    found: dict[str, Assignor] = {}
    for name in names:
        assignor = _BY_NAME.get(name) or _own_assignor(name)
        if assignor.name in found:
            raise FormatError(f"{name!r}: another assignor of the list is {assignor.name!r}, too")
        found[assignor.name] = assignor
    if not found:
        raise FormatError("the list of assignors is empty: name at least one")
    return tuple(found.values())


def are_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Return whether a member with these assignors keeps its partitions while it joins again.

    One assignor that is not cooperative makes the member eager, whichever one the group chooses.
    So a group moves to cooperative rebalances in two rolling restarts: first each member offers the
    cooperative assignor, too, then each offers it alone. Source: KIP-429.
    """
    return all(assignor.is_cooperative for assignor in assignors)


def _own_assignor(path: str) -> Assignor:
    if ":" not in path:
        known = ", ".join(f'"{name}"' for name in _BY_NAME)
        raise FormatError(f'{path!r} is no assignor: allowed are {known} and "module:object"')
    try:
        target = load_object(path)
        if inspect.isclass(target) or not hasattr(target, _METHODS[0]):
            target = target()
    except Exception as error:
        # The user's code may raise anything; start-up ends with its error.
        raise FormatError(f"{path!r}: {text_of(error)}") from error
    missing = [name for name in ("name", "is_cooperative", *_METHODS) if not hasattr(target, name)]
    if missing:
        raise FormatError(f"{path!r} is no assignor: it has no {', '.join(missing)}")
    if not _is_name(target.name):
        raise FormatError(
            f"{path!r} is no assignor: its name must be a string of 1 to {_LONGEST_NAME} bytes"
        )
    return cast(Assignor, target)


def _is_name(name: object) -> bool:
    if not isinstance(name, str):
        return False
    try:
        return 0 < len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        # Half of a surrogate pair, which no request can have.
        return False
