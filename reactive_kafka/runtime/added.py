"""The settings of a channel that is added while the application runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reactive_kafka.config.collect import Collected
from reactive_kafka.config.config_files import exposure_of, read_secret
from reactive_kafka.config.layers import Problems, expanded, of_code
from reactive_kafka.config.load import LoadedConfiguration, SettingsBuilder
from reactive_kafka.config.startup_warnings.traps import shared_groups


def with_channel(
    reading: LoadedConfiguration,
    who: str,
    name: str,
    table: Mapping[str, Any],
    environ: Mapping[str, str],
) -> LoadedConfiguration:
    """The same with one more incoming channel, whose table code gives; errors say *who* as the
    place of it.

    Its problems and warnings are those of the channel alone.
    """
    problems = Problems()
    unused = Problems()
    given = Collected(problems, read_secret, exposure_of)
    given.plain = reading.given.plain
    given.add(expanded(of_code(who, {"incoming": {name: table}}), environ))
    settings = reading.settings
    before = reading.settings.incoming
    for channel in given.channels["incoming"].values():
        incoming = {
            **before,
            name: SettingsBuilder(given, problems, unused).incoming(name, channel),
        }
        shared = set(shared_groups(before.values()))
        told = [text for text in shared_groups(incoming.values()) if text not in shared]
        settings = replace(
            settings, incoming=incoming, warnings=(*given.warnings, *unused.report(), *told)
        )
    return LoadedConfiguration(settings, tuple(problems.report()), reading.given)
