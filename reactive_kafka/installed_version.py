"""The version of this package, as pip knows it."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "reactive-kafka"


@cache
def installed_version() -> str | None:
    """Return the version; None: the package runs from its sources, and is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None
