"""The dependencies of the handlers and sources of a plan. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.dependencies.depends import Factory
from reactive_kafka.handlers.dependencies.graph import Dependent, Graph
from reactive_kafka.handlers.signature import HandlerFunction
from reactive_kafka.planning.channel_plans import AppPlan, SourcePlan


def dependents(
    handlers: Iterable[HandlerFunction], sources: Iterable[SourcePlan]
) -> list[Dependent]:
    """Return the handlers and sources that have dependencies."""
    found = [Dependent(handler.name, handler.needs, handler.shape) for handler in handlers]
    found += [Dependent(source.name, source.needs, None) for source in sources]
    return [dependent for dependent in found if dependent.needs]


def graph_of(plan: AppPlan, overrides: Mapping[Factory, Factory]) -> Graph:
    """Return the dependencies of an application.

    Args:
        overrides: A factory -> what is called in its place.

    Raises:
        ConfigError: With these overrides they cannot be made.
    """
    handlers = [handler_plan.handler for handler_plan in plan.handlers]
    graph = Graph(dependents(handlers, plan.sources), overrides)
    if graph.problems:
        raise ConfigError(*(f"app.dependency_overrides: {problem}" for problem in graph.problems))
    return graph
