"""Shorthands of the configuration's tests: load from text or tables, and collect what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.config.load import read_settings
from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import ConfigError

Tables = Mapping[str, Any]


def loaded(
    source: str | Path | Tables | None, environ: Mapping[str, str] | None = None, **more: Any
) -> Settings:
    return read_settings(source, environ=environ or {}, **more).checked()


def problems(
    source: str | Path | Tables | None, environ: Mapping[str, str] | None = None, **more: Any
) -> list[str]:
    """The lines of the one error that loading ends with."""
    with pytest.raises(ConfigError) as caught:
        loaded(source, environ, **more)
    return list(caught.value.problems)


def only_problem(
    source: str | Path | Tables | None, environ: Mapping[str, str] | None = None, **more: Any
) -> str:
    lines = problems(source, environ, **more)
    assert len(lines) == 1, lines
    return lines[0]


def unused(
    source: str | Path | Tables | None, environ: Mapping[str, str] | None = None, **more: Any
) -> list[str]:
    """What is told to have no effect, of a configuration that has no problems."""
    return list(loaded(source, environ, **more).warnings)


def incoming(**keys: Any) -> dict[str, Any]:
    """Tables of one incoming channel called orders."""
    return {"incoming": {"orders": {"group_id": "billing"} | keys}}


def outgoing(**keys: Any) -> dict[str, Any]:
    """Tables of one outgoing channel called invoices."""
    return {"outgoing": {"invoices": keys}}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
