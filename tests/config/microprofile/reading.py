"""Shorthands: an ``application.properties`` from a text, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from reactive_kafka.config.layers import Layer
from reactive_kafka.config.microprofile.properties_syntax import entries
from reactive_kafka.config.microprofile.property_values import PropertySource, profiles_of
from reactive_kafka.config.microprofile.quarkus_layer import meant
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from tests.config import loading

Environ = Mapping[str, str]
PREFIX = {
    side: f"mp.messaging.{side}.{name}."
    for side, name in (("incoming", "orders"), ("outgoing", "invoices"))
}


# Gone at the end of the process; a fixture's would be one for all examples of a test.
FOLDER = TemporaryDirectory()


def written(text: str) -> Path:
    """The text in a file, which is alone in its folder."""
    path = Path(mkdtemp(dir=FOLDER.name)) / "application.properties"
    path.write_text(text)
    return path


def loaded(text: str, environ: Environ | None = None) -> Settings:
    return loading.loaded(written(text), environ)


def problems(text: str, environ: Environ | None = None) -> list[str]:
    """The problems, without the folder before the file's name."""
    path = written(text)
    return [line.removeprefix(f"{path.parent}/") for line in loading.problems(path, environ)]


def only_problem(text: str, environ: Environ | None = None) -> str:
    lines = problems(text, environ)
    assert len(lines) == 1, lines
    return lines[0]


def channel(side: str, attributes: Mapping[str, str]) -> str:
    """The text of one channel: orders, in a group, or invoices."""
    group = {"group.id": "g"} if side == "incoming" else {}
    return "\n".join(
        f"{PREFIX[side]}{name}={value}" for name, value in {**group, **attributes}.items()
    )


def incoming(attributes: Mapping[str, str], more: str = "") -> IncomingSettings:
    return loaded(channel("incoming", attributes) + "\n" + more).incoming["orders"]


def outgoing(attributes: Mapping[str, str], more: str = "") -> OutgoingSettings:
    return loaded(
        channel("outgoing", {"connector": "smallrye-kafka", **attributes}) + "\n" + more
    ).outgoing["invoices"]


def layer(text: str, environ: Environ | None = None) -> Layer:
    """What the text means, before our own keys are looked at."""
    sources = [PropertySource("application.properties", entries(text))]
    return meant(sources, environ or {}, profiles_of(environ or {}, sources), "id").layer


def leaves(side: str, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Key (``table.key`` for one in a table) -> value, of one channel."""
    found = layer(channel(side, {"connector": "smallrye-kafka", **attributes}))
    assert found.problems == ()
    return {".".join(leaf.path[2:]): leaf.value for leaf in found.leaves if leaf.path[0] == side}
