"""Reads the files of a MicroProfile configuration.

This module, and all that it needs, is imported only when there is such a file.
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

# A profile that may be part of a file's name.
_PROFILE = re.compile(r"[\w.-]+")


def read_quarkus(path: Path, environ: Mapping[str, str]) -> tuple[QuarkusConfig, tuple[str, ...]]:
    """Return what an ``application.properties`` or ``.yaml`` of Quarkus means, and its profiles.

    The files of the active profiles in the same folder are read, too.

    Raises:
        ConfigError: See :func:`.read_file`.
        MissingExtraError: See :func:`.read_file`.
    """
    sources = [_source(path)]
    profiles = profiles_of(environ, sources)
    suffixes = YAML if path.suffix in YAML else (path.suffix,)
    for profile in profiles if path.stem == "application" else ():
        # If a profile has two files, Quarkus prefers .yaml to .yml. So it comes last, and wins.
        for suffix in reversed(suffixes):
            profile_file = path.parent / f"application-{profile}{suffix}"
            if _PROFILE.fullmatch(profile) and profile_file.exists():
                sources.append(_source(profile_file, profile))
    return meant(sources, environ, profiles, uuid4().hex), profiles


def _source(path: Path, profile: str | None = None) -> PropertySource:
    if path.suffix.lower() in YAML:
        return PropertySource(str(path), yaml_entries(str(path), text_of(path)), profile)
    try:
        return PropertySource(str(path), entries(text_of(path)), profile)
    except PropertiesError as error:
        raise ConfigError(f"{path}, line {error.line}: not a properties file: {error}") from None
