"""docs/observers.md has every event; ``python -m tests.observe.test_events_page`` prints its
tables. Meanings and fields are in the reference that is made from the docstrings.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

from reactive_kafka import App, Observer, events
from reactive_kafka.errors import ConfigError
from reactive_kafka.observe import events as inside
from reactive_kafka.observe.events import (
    Event,
    base,
    channel_events,
    commits,
    reading,
    record_events,
    scheduled_jobs,
)
from tests.pages import page

PAGE = page("docs/observers.md")
HEADINGS: dict[str, ModuleType] = {
    "What events have in common": base,
    "Channels": channel_events,
    "What a channel reads": reading,
    "Commits and stores": commits,
    "Records and Spark batches": record_events,
    "Jobs": scheduled_jobs,
}


def kinds_in(module: ModuleType) -> list[type[Event]]:
    """The event classes of a module, in the order of the file."""
    names = [
        node.name
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    ]
    found = [getattr(module, name) for name in names]
    return [kind for kind in found if issubclass(kind, Event)]


def level(kind: type[Event]) -> str:
    """The level of its log line, as the page has it."""
    if "loudness" in vars(kind) and kind is not Event:
        return "info or warning"
    return kind.level


def rows(module: ModuleType) -> Iterator[str]:
    """The table of a module's events: those of a level are one row."""
    by_level: dict[str, list[str]] = {}
    for kind in kinds_in(module):
        by_level.setdefault(level(kind), []).append(f"`{kind.__name__}`")
    yield "| level | events |"
    yield "|---|---|"
    for name in ("error", "warning", "info or warning", "info"):
        if name in by_level:
            yield f"| {name} | {', '.join(by_level[name])} |"


@pytest.mark.parametrize(
    "kind", [kind for module in HEADINGS.values() for kind in kinds_in(module)]
)
def test_every_event_has_a_meaning(kind: type[Event]) -> None:
    first = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    assert first.endswith(".")
    assert not first.startswith(f"{kind.__name__}("), f"{kind.__name__} has no docstring"


def section(heading: str) -> list[str]:
    text = PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_page_has_every_event(heading: str) -> None:
    assert section(heading) == list(rows(HEADINGS[heading]))


def test_the_page_names_the_events_without_a_channel() -> None:
    without = [
        f"`{kind.__name__}`"
        for module in HEADINGS.values()
        for kind in kinds_in(module)
        if "channel" not in {one.name for one in dataclasses.fields(kind)}
    ]
    names = f"{', '.join(without[:-1])} and {without[-1]}"
    assert f"All events but {names} also have the field" in " ".join(PAGE.read_text().split())


def test_every_event_and_what_is_told_of_it_can_be_imported() -> None:
    kinds = {
        name: kind
        for name, kind in vars(inside).items()
        if isinstance(kind, type) and issubclass(kind, Event)
    }
    assert set(events.__all__) == {*kinds, "Observer"}
    assert {name: getattr(events, name) for name in kinds} == kinds
    assert {kind for module in HEADINGS.values() for kind in kinds_in(module)} == set(
        kinds.values()
    )
    assert events.Observer is Observer


class AsyncObserver:
    async def on(self, event: Event) -> None: ...


@pytest.mark.parametrize(
    ("observer", "why"),
    [
        (print, "has no method `on`"),
        (AsyncObserver(), "has an async `on`, which is never awaited"),
    ],
)
def test_what_is_no_observer_is_refused_at_once(observer: Observer, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        App({}, observer=observer)
    with pytest.raises(ConfigError, match=why):
        App({}).observe(observer)


if __name__ == "__main__":
    for heading, module in HEADINGS.items():
        print(f"### {heading}\n", *rows(module), "", sep="\n")
