"""Checks what a channel's settings import, and whether they fit its functions. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.channel.named_functions import MetadataReader, key_of
from reactive_kafka.checkpoint.state_codec import codec_for
from reactive_kafka.commit import strategy as commits
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.skipping import filter_of
from reactive_kafka.failure import strategies as failures
from reactive_kafka.planning.problems import ProblemReport

Load = Callable[[IncomingSettings], object]

_IMPORTS: tuple[Load, ...] = (
    key_of,
    filter_of,
    MetadataReader,
    codec_for,
    commits.load_custom,
    failures.load_custom,
)
"""They import what a channel's settings name as ``module:function``."""
_OBJECTS: tuple[Load, ...] = (
    MetadataReader,
    codec_for,
    commits.strategy_for,
    failures.strategies_of,
)
"""They also make the channel's strategies, which needs settings that are complete."""


def check_imports(settings: IncomingSettings, report: ProblemReport) -> None:
    """Import what the settings name. They may be incomplete."""
    for load in _IMPORTS:
        report.attempt("", load, settings)


def check_objects(settings: IncomingSettings, report: ProblemReport) -> None:
    """Import what the settings name, and make the channel's strategies from it.

    What is made here is thrown away: a channel makes its strategies when it starts.
    """
    for make in _OBJECTS:
        report.attempt("", make, settings)


def check_ordering(who: str, settings: IncomingSettings, report: ProblemReport) -> None:
    """Refuse what is for single records, for a function that takes batches.

    That is an order by key, and a rate for each value.
    """
    rate = settings.rate_limit
    if rate is not None and rate.by is not None:
        where = settings.place("rate_limit.by", rate.by)
        report.add(f"{where}: it limits single records, but {who} takes batches")
    if settings.ordering == "key":
        where = settings.place("ordering", settings.ordering)
        report.add(f"{where}: it orders single records, but {who} takes batches")
