"""Finds which declared function serves which channel. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from reactive_kafka.config.settings import Settings
from reactive_kafka.handlers.declared import Declared
from reactive_kafka.handlers.declared_functions import DeclaredFunction
from reactive_kafka.handlers.dependencies.graph import Graph
from reactive_kafka.handlers.introspection import annotated_return
from reactive_kafka.handlers.signature import (
    name_and_place,
    name_of_handler,
    source_needs,
    why_no_source,
)
from reactive_kafka.handlers.unknown_channels import unknown_channel_problem
from reactive_kafka.memory_channels.connection_check import MemoryUse, memory_problems
from reactive_kafka.planning.channel_handlers import ChannelHandler, ChannelOnSpark
from reactive_kafka.planning.channel_plans import SourcePlan
from reactive_kafka.planning.dependency_graph import dependents
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.settings_checks import check_ordering
from reactive_kafka.planning.sharing import sharing_problems


@dataclass(slots=True)
class MatchedFunctions:
    """The functions of an application by channel, and its sources.

    Attributes:
        handlers: Channel -> its handlers, in the order of their decorators.
        on_spark: Channel -> its Spark function. Such a channel has no handlers.
        warnings: What is allowed, but is hardly meant.
    """

    handlers: dict[str, list[ChannelHandler]] = field(default_factory=dict)
    on_spark: dict[str, ChannelOnSpark] = field(default_factory=dict)
    sources: list[SourcePlan] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def all_handlers(self) -> list[ChannelHandler]:
        """The handlers of all channels."""
        return list(chain.from_iterable(self.handlers.values()))


def match_functions(
    declared: Declared, settings: Settings, report: ProblemReport
) -> MatchedFunctions:
    """Find the functions of each channel, and judge what can be judged by names and signatures.

    The settings may be incomplete, because some of them have problems of their own.
    """
    matched = MatchedFunctions()
    for entry in declared.functions.entries:
        _match(entry, settings, matched, report)
    _match_spark(declared, settings, matched, report)
    for channel, handlers in matched.handlers.items():
        if channel in settings.memory:
            memory = settings.memory[channel].as_incoming
            report.add(*sharing_problems(handlers, memory, are_objects=True))
            continue
        incoming = settings.incoming[channel]
        report.add(*sharing_problems(handlers, incoming, are_objects=False))
        for handler in handlers:
            if handler.takes_batches:
                check_ordering(handler.who, incoming, report)
    functions = [handler.function for handler in matched.all_handlers]
    report.add(*Graph(dependents(functions, matched.sources)).problems)
    report.add(*memory_problems(settings.memory, _memory_uses(declared), declared.emitters))
    return matched


def _match(
    entry: DeclaredFunction, settings: Settings, matched: MatchedFunctions, report: ProblemReport
) -> None:
    """Note what one function is: the handler of its channels, or a source."""
    who = name_and_place(entry.function)
    outgoing = tuple(dict.fromkeys(entry.outgoing))
    for name in outgoing:
        if name not in settings.outgoing and name not in settings.memory:
            decorator = f"@app.outgoing({name!r}) of {who}"
            report.add(unknown_channel_problem(decorator, "outgoing", name, settings))
    if entry.draft is None:
        # Without @app.outgoing either, its @app.incoming has raised, and the application has caught
        # that.
        if outgoing:
            _match_source(entry, outgoing, matched, report)
        return
    function = report.attempt(who, entry.draft.to_function, bool(outgoing))
    if not outgoing and (warning := entry.draft.dropped()):
        matched.warnings.append(warning)
    if function is None:
        return
    for decoration in entry.incoming:
        channel = decoration.channel
        decorator = f"@app.incoming({channel!r}) of {who}"
        if channel not in settings.incoming and channel not in settings.memory:
            report.add(unknown_channel_problem(decorator, "incoming", channel, settings))
            continue
        handler = ChannelHandler(decorator, function, decoration, outgoing, decoration.layers)
        matched.handlers.setdefault(channel, []).append(handler)


def _match_source(
    entry: DeclaredFunction,
    outgoing: tuple[str, ...],
    matched: MatchedFunctions,
    report: ProblemReport,
) -> None:
    function = entry.function
    if problem := why_no_source(function):
        report.add(problem)
        return
    source = SourcePlan(
        function,
        name_of_handler(function),
        outgoing,
        returns=annotated_return(function),
        needs=source_needs(function),
        send_middleware=entry.layers.around_sends() if entry.layers is not None else (),
    )
    matched.sources.append(source)


def _match_spark(
    declared: Declared, settings: Settings, matched: MatchedFunctions, report: ProblemReport
) -> None:
    for channel, decoration in declared.functions.spark.items():
        who = f"@app.spark({channel!r}) of {name_and_place(decoration.function)}"
        if channel in settings.memory:
            report.add(
                f"{who}: [memory.{channel}] is a memory channel: it has objects of this process, "
                "and Spark takes records of Kafka's"
            )
        elif channel not in settings.incoming:
            report.add(unknown_channel_problem(who, "incoming", channel, settings))
        elif channel in matched.handlers:
            first = matched.handlers[channel][0].who
            report.add(
                f"channel {channel!r} has two handlers: {first} and {who}; a Spark function must "
                "be the only one of its channel"
            )
        else:
            matched.on_spark[channel] = ChannelOnSpark(who, decoration)


def _memory_uses(declared: Declared) -> list[MemoryUse]:
    uses = [
        MemoryUse(tuple(decoration.channel for decoration in entry.incoming), tuple(entry.outgoing))
        for entry in declared.functions.entries
    ]
    # A Spark function of a memory channel is a problem of its own. So it counts as a handler here:
    # the channel is not also reported as one without a handler.
    uses += [MemoryUse((channel,), ()) for channel in declared.functions.spark]
    return uses
