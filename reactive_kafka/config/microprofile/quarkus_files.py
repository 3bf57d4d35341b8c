"""The files of a MicroProfile configuration. Imported, with all that reads them, where one is
read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from reactive_kafka.config.config_files import YAML, text_of
from reactive_kafka.config.microprofile.properties_syntax import PropertiesError, entries
from reactive_kafka.config.microprofile.property_values import PropertySource, profiles_of
from reactive_kafka.config.microprofile.quarkus_layer import QuarkusConfig, meant
from reactive_kafka.config.microprofile.yaml_entries import yaml_entries
from reactive_kafka.errors import ConfigError

# That a file can be named after.
_PROFILE = re.compile(r"[\w.-]+")


def read_quarkus(path: Path, environ: Mapping[str, str]) -> tuple[QuarkusConfig, tuple[str, ...]]:
    """What an ``application.properties``, or ``application.yaml``, of Quarkus means; and the active
    profiles.

    The files of its profiles beside it are read, too. Raises as :func:`.read_file`.
    """
    sources = [_source(path)]
    profiles = profiles_of(environ, sources)
    suffixes = YAML if path.suffix in YAML else (path.suffix,)
    for profile in profiles if path.stem == "application" else ():
        # Of two files of one profile Quarkus prefers that with .yaml, so it comes last.
        for suffix in reversed(suffixes):
            beside = path.parent / f"application-{profile}{suffix}"
            if _PROFILE.fullmatch(profile) and beside.exists():
                sources.append(_source(beside, profile))
    return meant(sources, environ, profiles, uuid4().hex), profiles


def _source(path: Path, profile: str | None = None) -> PropertySource:
    if path.suffix.lower() in YAML:
        return PropertySource(str(path), yaml_entries(str(path), text_of(path)), profile)
    try:
        return PropertySource(str(path), entries(text_of(path)), profile)
    except PropertiesError as error:
        raise ConfigError(f"{path}, line {error.line}: not a properties file: {error}") from None
