"""Reads the configuration and fits what was decorated to it, without connecting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reactive_kafka.config.load import read_settings
from reactive_kafka.config.schema import Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.hooks import HookSet
from reactive_kafka.handlers.registry import Registry
from reactive_kafka.handlers.spec import AppSpec


def configured(
    source: str | Path | Mapping[str, Any] | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, Any] | None,
    registry: Registry,
    hooks: HookSet,
) -> tuple[Settings, AppSpec]:
    """The settings, and how everything decorated fits them.

    Raises:
        ConfigError: Whatever is wrong, all of it at once.
    """
    reading = read_settings(source, environ=environ, overrides=overrides)
    settings = reading.settings
    problems = [*reading.problems, *hooks.misfits(settings)]
    if reading.problems:  # values may be missing, so only what is named and signatures can be judged
        raise ConfigError(*problems, *registry.misfits(settings))
    try:
        spec = registry.spec(settings)
    except ConfigError as error:
        raise ConfigError(*problems, *error.problems) from None
    if problems:
        raise ConfigError(*problems)
    return settings, spec


def check_extras(spec: AppSpec, settings: Settings, *, spark: bool, stores: bool) -> None:
    """Check that what the channels need is installed.

    Args:
        spark: The application makes its own Spark session.
        stores: It opens its own checkpoint stores.

    Raises:
        MissingExtraError: A package is not installed.
        ConfigError: There is no Java that fits, or a store's URL cannot be opened.
    """
    on_spark = [channel.settings for channel in spec.incoming.values() if channel.spark is not None]
    if on_spark and spark:
        from reactive_kafka.spark.session.engine import maker_for

        places = [one.place("spark.mode", "ranges") for one in on_spark if one.spark.mode == "ranges"]
        maker_for(settings.spark, ranges=bool(places), places=places)
    if stores and any(channel.checkpoint for channel in settings.incoming.values()):
        from reactive_kafka.checkpoint.stores.opening import check_stores

        check_stores(settings.incoming.values())
