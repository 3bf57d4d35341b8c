"""The files of a MicroProfile configuration. Imported, with all that reads them, where one is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from reactive_kafka.config.microprofile.application import Meant, meant
from reactive_kafka.config.microprofile.text import PropertiesError, entries
from reactive_kafka.config.microprofile.values import Source, profiles_of
from reactive_kafka.config.read import text_of
from reactive_kafka.errors import ConfigError

_PROFILE = re.compile(r"[\w.-]+")  # that a file can be named after


def read_properties(path: Path, environ: Mapping[str, str]) -> tuple[Meant, tuple[str, ...]]:
    """What an ``application.properties`` means, with the files of its profiles beside it; and the active profiles.

    A ConfigError as of :func:`.read_file`.
    """
    sources = [_source(path)]
    profiles = profiles_of(environ, sources)
    for profile in profiles if path.name == "application.properties" else ():
        beside = path.parent / f"application-{profile}.properties"
        if _PROFILE.fullmatch(profile) and beside.exists():
            sources.append(_source(beside, profile))
    return meant(sources, environ, profiles, uuid4().hex), profiles


def _source(path: Path, profile: str | None = None) -> Source:
    try:
        return Source(str(path), entries(text_of(path)), profile)
    except PropertiesError as error:
        raise ConfigError(f"{path}, line {error.line}: not a properties file: {error}") from None
