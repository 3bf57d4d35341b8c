"""Plans a whole application: settings and declarations become an :class:`AppPlan`, or problems.

No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from reactive_kafka.config.load import LoadedConfiguration
from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.declared import Declared
from reactive_kafka.planning.channel_plans import AppPlan, IncomingPlan, MemoryPlan, OutgoingPlan
from reactive_kafka.planning.exception_names import unknown_exception_names
from reactive_kafka.planning.function_matching import MatchedFunctions, match_functions
from reactive_kafka.planning.incoming_plan import plan_incoming
from reactive_kafka.planning.lost_outputs import may_lose_outputs
from reactive_kafka.planning.memory_plan import plan_memory
from reactive_kafka.planning.outbox_rules import outbox_without_handler, outboxes
from reactive_kafka.planning.outgoing_plan import plan_outgoing
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.retry_later_calls import retry_later_without_topics
from reactive_kafka.planning.return_types import types_without_schema
from reactive_kafka.planning.settings_checks import check_imports, check_objects
from reactive_kafka.planning.spark_plan import plan_spark
from reactive_kafka.planning.transaction_rules import shared_transactional_ids
from reactive_kafka.planning.unused_settings import topics_never_created, unused_settings


def plan_application(reading: LoadedConfiguration, declared: Declared) -> AppPlan:
    """Plan all channels and sources of an application.

    Args:
        reading: The configuration. If it has problems of its own, values may be missing: then only
            names, signatures and imports are checked besides.

    Raises:
        ConfigError: Everything that is wrong with the configuration and the declarations.
    """
    settings = reading.settings
    # These come first in the report, in the order of the files that were read.
    first_problems = [*reading.problems, *declared.hooks.problems(settings)]
    report = ProblemReport()
    matched = match_functions(declared, settings, report)
    if reading.problems:
        for channel in settings.incoming.values():
            check_imports(channel, report)
        raise ConfigError(*first_problems, *report.problems)
    incoming = _plan_incoming(matched, settings, report)
    for channel in settings.incoming.values():
        check_objects(channel, report)
    outgoing = _plan_outgoing(settings, report)
    memory = _plan_memory(matched, settings, report)
    report.add(*outbox_without_handler(matched.sources, declared.emitters, settings.outgoing))
    report.add(*types_without_schema(matched.all_handlers, matched.sources, settings.outgoing))
    if first_problems or report:
        raise ConfigError(*first_problems, *report.problems)
    fed = set(chain.from_iterable(entry.outgoing for entry in declared.functions.entries))
    return AppPlan(
        incoming,
        outgoing,
        tuple(matched.sources),
        warnings=(*matched.warnings, *_warnings(incoming, matched, settings)),
        unfed=tuple(name for name in outgoing if name not in fed),
        memory=memory,
    )


def _plan_incoming(
    matched: MatchedFunctions, settings: Settings, report: ProblemReport
) -> Mapping[str, IncomingPlan]:
    plans: dict[str, IncomingPlan] = {}
    # Channels with functions come first, in the order of their decorators.
    with_handlers = [name for name in matched.handlers if name not in settings.memory]
    for name in dict.fromkeys([*with_handlers, *matched.on_spark, *settings.incoming]):
        channel = settings.incoming[name]
        on_spark = matched.on_spark.get(name)
        if on_spark is not None:
            plan = report.attempt("", plan_spark, on_spark, channel)
        else:
            handlers = matched.handlers.get(name, ())
            plan = report.attempt("", plan_incoming, handlers, channel, settings.outgoing)
        if plan is not None:
            plans[name] = plan
    return plans


def _plan_outgoing(settings: Settings, report: ProblemReport) -> Mapping[str, OutgoingPlan]:
    plans: dict[str, OutgoingPlan] = {}
    for name, channel in settings.outgoing.items():
        plan = report.attempt("", plan_outgoing, channel)
        if plan is not None:
            plans[name] = plan
    report.add(*shared_transactional_ids(settings.outgoing.values()))
    return plans


def _plan_memory(
    matched: MatchedFunctions, settings: Settings, report: ProblemReport
) -> Mapping[str, MemoryPlan]:
    plans: dict[str, MemoryPlan] = {}
    for name, channel in settings.memory.items():
        # One without handlers is a problem that is reported already.
        if name in matched.handlers:
            handlers = matched.handlers[name]
            plan = report.attempt("", plan_memory, handlers, channel, settings.outgoing)
            if plan is not None:
                plans[name] = plan
    return plans


def _warnings(
    incoming: Mapping[str, IncomingPlan], matched: MatchedFunctions, settings: Settings
) -> Iterator[str]:
    for name, channel in settings.incoming.items():
        if name not in matched.on_spark:
            yield from unused_settings(channel, matched.handlers.get(name, ()))
    yield from topics_never_created(settings)
    for plan in incoming.values():
        yield from may_lose_outputs(plan, outboxes(settings.outgoing))
    for plan in incoming.values():
        yield from retry_later_without_topics(plan)
    for name, channel in settings.incoming.items():
        yield from unknown_exception_names(channel, is_on_spark=name in matched.on_spark)
