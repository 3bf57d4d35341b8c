"""Plans an incoming channel that is added while the application runs. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reactive_kafka.config.collect import Collected
from reactive_kafka.config.config_files import exposure_of, read_secret
from reactive_kafka.config.layers import Problems, expanded, of_code
from reactive_kafka.config.load import LoadedConfiguration, SettingsBuilder
from reactive_kafka.config.settings import Settings
from reactive_kafka.config.startup_warnings.traps import shared_groups
from reactive_kafka.handlers.declared_functions import DeclaredFunctions
from reactive_kafka.handlers.decorations import IncomingDecoration
from reactive_kafka.handlers.signature import draft_handler, name_and_place
from reactive_kafka.handlers.unknown_channels import unknown_channel_problem
from reactive_kafka.planning.channel_handlers import ChannelHandler
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.planning.incoming_plan import plan_incoming
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.settings_checks import check_objects, check_ordering
from reactive_kafka.planning.sharing import sharing_problems
from reactive_kafka.planning.unused_settings import unused_settings


def read_added_channel(
    reading: LoadedConfiguration,
    who: str,
    name: str,
    table: Mapping[str, Any],
    environ: Mapping[str, str],
) -> LoadedConfiguration:
    """Return the reading with one more incoming channel, whose table comes from code.

    Its problems and warnings are those of the new channel alone.

    Args:
        who: The call that adds the channel. Errors name it as the place of the table.
    """
    problems = Problems()
    unused = Problems()
    given = Collected(problems, read_secret, exposure_of)
    given.plain = reading.given.plain
    given.named["limits"] = reading.given.named["limits"]
    given.add(expanded(of_code(who, {"incoming": {name: table}}), environ))
    settings = reading.settings
    before = reading.settings.incoming
    for channel in given.named["incoming"].values():
        incoming = {
            **before,
            name: SettingsBuilder(given, problems, unused, before).incoming(name, channel),
        }
        known_groups = set(shared_groups(before.values()))
        new_groups = [text for text in shared_groups(incoming.values()) if text not in known_groups]
        settings = replace(
            settings, incoming=incoming, warnings=(*given.warnings, *unused.report(), *new_groups)
        )
    return LoadedConfiguration(settings, tuple(problems.report()), reading.given)


def plan_added_channel(
    who: str,
    function: Callable[..., Any],
    decoration: IncomingDecoration,
    outgoing: Sequence[str],
    functions: DeclaredFunctions,
    settings: Settings,
) -> tuple[IncomingPlan, list[str]]:
    """Plan how *function* handles a channel of *settings*; with the warnings about it.

    Args:
        who: The call that adds the channel, for errors.
        outgoing: Channels that the results are sent to, besides those of its decorators.
        functions: The functions that were decorated. This one need not be one of them.

    Raises:
        ConfigError: Everything that does not fit.
    """
    report = ProblemReport()
    entry = functions.known(function)
    channel = settings.incoming[decoration.channel]
    draft = entry.draft or draft_handler(function)
    who = f"{who} with {name_and_place(function)}"
    outgoing = tuple(dict.fromkeys((*entry.outgoing, *outgoing)))
    for name in outgoing:
        if name not in settings.outgoing and name not in settings.memory:
            report.add(unknown_channel_problem(who, "outgoing", name, settings))
    resolved = report.attempt(who, draft.to_function, bool(outgoing))
    if resolved is None:
        # Without its signature nothing else can be said of the function, but of the settings.
        report.attempt("", plan_incoming, (), channel, settings.outgoing)
        check_objects(channel, report)
        report.raise_if_any()
    assert resolved is not None  # noqa: S101
    # A decorated function has the middleware of the place where it was declared.
    layers = entry.incoming[0].layers if entry.incoming else decoration.layers
    handler = ChannelHandler(who, resolved, decoration, outgoing, layers)
    if resolved.needs:
        report.add(
            f"{who}: it has dependencies, which are made at the start: configure its channel with "
            "enabled = false, and start that"
        )
    if handler.takes_batches:
        check_ordering(who, channel, report)
    report.add(*sharing_problems([handler], channel, are_objects=False))
    plan = report.attempt("", plan_incoming, [handler], channel, settings.outgoing)
    check_objects(channel, report)
    report.raise_if_any()
    assert plan is not None  # noqa: S101
    dropped = None if outgoing else draft.dropped()
    warnings = [] if dropped is None else [dropped]
    return plan, [*warnings, *unused_settings(channel, [handler])]
