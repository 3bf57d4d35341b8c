"""Warns of exceptions in a channel's settings that do not seem to exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.settings import IncomingSettings

_LOADED_LATER = ("ValidationError",)
"""Classes of libraries that are loaded only with the first type that needs them."""


def unknown_exception_names(settings: IncomingSettings, *, is_on_spark: bool) -> Iterator[str]:
    """Yield a warning for each configured exception name that no exception has.

    The names are those of ``failure_routes``, ``retry.never`` and ``retry.only``. A simple name may
    be that of any exception class that is loaded: Python's own, this package's, those of the
    modules of the handlers and of what these import. Spark's exceptions are loaded with its
    session, so simple names of a channel on Spark are not judged. A dotted name is imported.
    """
    named = [
        ("failure_routes", tuple(settings.failure_routes)),
        ("retry.never", settings.retry.never or ()),
        ("retry.only", settings.retry.only or ()),
    ]
    known: Mapping[str, type[BaseException]] = {}
    for key, names in named:
        for name in names:
            known = known or _known()
            why = _why_unknown(name, known, is_on_spark=is_on_spark)
            if why is not None:
                yield f"channel {settings.name!r}: {key} names {name!r}: {why}"


def _known() -> dict[str, type[BaseException]]:
    """Return the names of all exception classes that are loaded -> one class of that name."""
    found: dict[str, type[BaseException]] = {}
    seen: set[type[BaseException]] = set()
    unseen: list[type[BaseException]] = [BaseException]
    while unseen:
        kind = unseen.pop()
        if kind in seen:
            continue
        seen.add(kind)
        found.setdefault(kind.__name__, kind)
        unseen += type.__subclasses__(kind)
    return found


def _why_unknown(
    name: str, known: Mapping[str, type[BaseException]], *, is_on_spark: bool
) -> str | None:
    module, _, simple = name.rpartition(".")
    if module:
        return _why_not_imported(module, simple)
    if simple in known or simple in _LOADED_LATER or is_on_spark:
        return None
    near = did_you_mean(simple, known)
    meant = f"; did you mean {near!r}?" if near is not None else "."
    return (
        f"no exception that is loaded has this name{meant} A class that is imported later is named "
        "with its module"
    )


def _why_not_imported(module: str, simple: str) -> str | None:
    try:
        there = import_module(module)
    except Exception as error:
        # The import of a module may raise anything.
        return f"{module} cannot be imported: {type(error).__name__}"
    found = getattr(there, simple, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return None
    if found is not None:
        return "it is no exception"
    kinds = {
        name: one
        for name, one in vars(there).items()
        if isinstance(one, type) and issubclass(one, BaseException)
    }
    near = did_you_mean(simple, kinds)
    hint = "" if near is None else f"; did you mean {near!r}?"
    return f"{module} has no such exception{hint}"
