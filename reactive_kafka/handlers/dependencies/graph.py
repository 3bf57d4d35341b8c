"""The dependencies of an application: what each of them needs, and the order they are made in.

No I/O.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from reactive_kafka.handlers.dependencies.depends import (
    EXAMPLE,
    Depends,
    Factory,
    Need,
    Scope,
    depends_in,
)
from reactive_kafka.handlers.introspection import code_of, is_coroutine, owner_of, resolve
from reactive_kafka.handlers.signature import Shape, name_and_place, name_of_handler
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.message import Message

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_EMPTY = inspect.Parameter.empty
_SUBJECTS = {Message: Shape.MESSAGE, Batch: Shape.BATCH}


class FactoryKind(Enum):
    """How a factory is called."""

    AWAITED = "awaited"
    # It is a class, whose call returns at once.
    CALLED = "called"
    IN_THREAD = "in a thread"
    # It is an async generator function, or returns an async context manager.
    ENTERED = "entered"
    ENTERED_IN_THREAD = "entered in a thread"


@dataclass(frozen=True, slots=True)
class DependencyStep:
    """How one dependency is made."""

    # The factory of the annotation. It identifies the dependency.
    asked: Factory
    # The factory that is called. An override may have replaced the other one.
    factory: Factory
    scope: Scope
    kind: FactoryKind
    needs: tuple[Need, ...] = ()
    # Parameters that get the message or the batch of the call.
    subjects: tuple[tuple[str, Shape], ...] = ()

    @property
    def is_ended(self) -> bool:
        """Whether something has to be done when its scope ends."""
        return self.kind in (FactoryKind.ENTERED, FactoryKind.ENTERED_IN_THREAD)

    @property
    def is_in_thread(self) -> bool:
        return self.kind in (FactoryKind.IN_THREAD, FactoryKind.ENTERED_IN_THREAD)


@dataclass(frozen=True, slots=True)
class Dependent:
    """A handler or source that has dependencies."""

    who: str
    needs: tuple[Need, ...]
    # What it is called with. None: it is a source, which is called with nothing.
    shape: Shape | None


class Graph:
    """The dependencies of an application.

    Attributes:
        problems: Why they cannot be made, one line each.

    Args:
        dependents: The functions that have some.
        overrides: A factory -> what is called in its place.
    """

    def __init__(
        self, dependents: Iterable[Dependent], overrides: Mapping[Factory, Factory] | None = None
    ) -> None:
        self.problems: list[str] = []
        self._overrides = overrides or {}
        # Each dependency comes after those that it needs.
        self._steps: dict[Factory, DependencyStep] = {}
        # Factory -> the scope it was first used with, and where.
        self._asked: dict[Factory, tuple[Scope, str]] = {}
        for dependent in dependents:
            for need in dependent.needs:
                self._visit(need.depends, f"parameter {need.parameter} of {dependent.who}", ())
            for step in self.of_call(dependent.needs):
                self._check_subjects(step, dependent)

    @property
    def of_app(self) -> tuple[DependencyStep, ...]:
        """What is made once for the application, in the order in which it is made."""
        return tuple(step for step in self._steps.values() if step.scope == "app")

    def of_call(self, needs: Sequence[Need]) -> tuple[DependencyStep, ...]:
        """Return what is made for each call with these needs, in the order in which it is made."""
        wanted = set[Factory]()
        to_visit = [need.depends.factory for need in needs]
        while to_visit:
            # A dependency with a problem has no step.
            step = self._steps.get(to_visit.pop())
            if step is not None and step.asked not in wanted:
                wanted.add(step.asked)
                to_visit += [need.depends.factory for need in step.needs]
        return tuple(
            step for step in self._steps.values() if step.scope == "call" and step.asked in wanted
        )

    def _visit(self, depends: Depends, who: str, way: tuple[Factory, ...]) -> None:
        """Add a dependency and, before it, those that it needs.

        Args:
            who: Where it is used, for errors.
            way: The factories on the way to it, which need each other.
        """
        factory = depends.factory
        if factory in way:
            around = (*way[way.index(factory) :], factory)
            circle = " -> ".join(name_of_handler(each) for each in around)
            self.problems.append(
                f"dependencies need each other, so that none can be made first: {circle}"
            )
            return
        if factory not in self._asked:
            self._asked[factory] = depends.scope, who
            self._add(depends, who, way)
            return
        scope, first = self._asked[factory]
        if scope != depends.scope:
            self.problems.append(
                f"dependency {name_and_place(factory)} has scope {scope!r} at {first}, and "
                f"{depends.scope!r} at {who}: give it the same one"
            )

    def _add(self, depends: Depends, who: str, way: tuple[Factory, ...]) -> None:
        factory = depends.factory
        try:
            step = _step(depends, self._overrides.get(factory, factory))
        except ValueError as error:
            self.problems.append(f"dependency {name_and_place(factory)}, {who}, {error}")
            return
        for need in step.needs:
            if depends.scope == "app" and need.depends.scope == "call":
                self.problems.append(
                    f"dependency {name_and_place(factory)} has scope 'app', and its parameter "
                    f"{need.parameter} is {name_of_handler(need.depends.factory)} with scope "
                    "'call', which ends before it: give that scope=\"app\", too"
                )
            self._visit(
                need.depends,
                f"parameter {need.parameter} of {name_of_handler(factory)}",
                (*way, factory),
            )
        if depends.scope == "app" and step.subjects:
            parameter, shape = step.subjects[0]
            self.problems.append(
                f"dependency {name_and_place(factory)} has scope 'app', and its parameter "
                f"{parameter} is the {shape.value} of a call"
            )
        self._steps[factory] = step

    def _check_subjects(self, step: DependencyStep, dependent: Dependent) -> None:
        """Check that a dependency that takes the message or batch is used where there is one."""
        given = Shape.MESSAGE if dependent.shape is Shape.PAYLOAD else dependent.shape
        for parameter, shape in step.subjects:
            if shape is not given:
                called = "nothing: it is a source" if given is None else f"a {given.value}"
                self.problems.append(
                    f"dependency {name_and_place(step.asked)} takes the {shape.value} of a call, "
                    f"as {parameter}, and {dependent.who} is called with {called}"
                )


def _step(depends: Depends, factory: Factory) -> DependencyStep:
    """Return how a dependency is made.

    Raises:
        ValueError: Its factory cannot be called, and why.
    """
    if not callable(factory):
        raise ValueError(f"is overridden with {factory!r}: expected a function or a class")
    needs = list[Need]()
    subjects = list[tuple[str, Shape]]()
    for parameter in _parameters(factory):
        annotation = _annotation(parameter, factory)
        found = depends_in(annotation)
        asked = annotation
        if typing.get_origin(annotation) is Annotated:
            asked = typing.get_args(annotation)[0]
        subject = _SUBJECTS.get(typing.get_origin(asked) or asked)
        if isinstance(parameter.default, Depends):
            raise ValueError(
                f"has Depends(...) as the default of {parameter.name}: annotate it, as in {EXAMPLE}"
            )
        if (found or subject) and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ValueError(
                f"has the positional-only parameter {parameter.name}: dependencies are given by "
                "name"
            )
        if found is not None:
            needs.append(Need(parameter.name, found))
        elif subject is not None:
            subjects.append((parameter.name, subject))
        elif parameter.default is _EMPTY:
            raise ValueError(
                f"has the parameter {parameter.name}, which nothing fills: annotate it, as in "
                f"{EXAMPLE}"
            )
    return DependencyStep(
        depends.factory, factory, depends.scope, _kind_of(factory), tuple(needs), tuple(subjects)
    )


def _parameters(factory: Factory) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (ValueError, TypeError):
        # Some builtins have no signature. Their first call shows whether they can be called.
        return []
    return [parameter for parameter in parameters if parameter.kind not in _REST]


def _annotation(parameter: inspect.Parameter, factory: Factory) -> Any:
    """Return the resolved annotation of a parameter.

    Any: the parameter has a default, and its annotation cannot be resolved.
    """
    written_at = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return resolve(parameter.annotation, written_at)
    except Exception as error:
        # An annotation is the user's code and may raise anything.
        if parameter.default is not _EMPTY and "Depends" not in str(parameter.annotation):
            return Any
        raise ValueError(
            f"has the annotation {parameter.annotation!r} at {parameter.name!r}, which cannot be "
            f"resolved: {type(error).__name__}: {error}"
        ) from error


def _kind_of(factory: Factory) -> FactoryKind:
    if inspect.isclass(factory):
        return FactoryKind.CALLED
    if is_coroutine(factory):
        return FactoryKind.AWAITED
    # @asynccontextmanager hides the generator function: owner_of() finds it.
    for code in (code_of(factory), owner_of(factory)):
        if inspect.isasyncgenfunction(code):
            return FactoryKind.ENTERED
        if inspect.isgeneratorfunction(code):
            return FactoryKind.ENTERED_IN_THREAD
    return FactoryKind.IN_THREAD
