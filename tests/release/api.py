"""What users build on, as text: names, signatures, options, keys, metrics and exit codes.

``python -m tests.release.api --write`` rewrites ``api.txt`` in this folder; without ``--write`` it
prints the difference.
"""

from __future__ import annotations

import difflib
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from reactive_kafka.cli import errors as cli_errors
from reactive_kafka.cli.commands import MODULES, commands
from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import PROPERTIES, REFUSED
from reactive_kafka.config.keys import Section
from reactive_kafka.observe.catalogue import CATALOGUE

FILE = Path(__file__).with_name("api.txt")
PUBLIC = ("reactive_kafka", "reactive_kafka.testing", "reactive_kafka.events")
LONG = 80
COMMAND = "python -m tests.release.api --write"


def api() -> str:
    """All of it, one thing a line, so that a difference can be read."""
    sections = {
        "Names": _names(),
        "Configuration": _configuration(),
        "Metrics": _metrics(),
        "Command line": _command_line(),
        "Exit codes": _exit_codes(),
    }
    texts = (f"## {title}\n" + "\n".join(lines) for title, lines in sections.items())
    return f"# Written by `{COMMAND}`.\n\n" + "\n\n".join(texts) + "\n"


def difference(before: str, now: str) -> str:
    """The lines that are gone and that are new, as a unified diff; empty if there are none."""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "as written", "as it is now", n=0, lineterm=""
    )
    return "\n".join(lines)


def _names() -> Iterator[str]:
    for module_name in PUBLIC:
        module = importlib.import_module(module_name)
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            if not isinstance(thing, ModuleType):
                yield from _name(f"{module_name}.{name}", thing)


def _name(path: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        # An alias for a type can be called too, but nobody does.
        yield from _callable(path, thing) if inspect.isroutine(thing) else [path]
        return
    if issubclass(thing, enum.Enum):
        yield from (f"{path}.{member.name} = {member.value!r}" for member in thing)
        return
    bases = [base.__name__ for base in thing.__bases__ if base is not object]
    yield path + (f" is {', '.join(bases)}" if bases else "")
    yield from _callable(path, thing)
    members = {
        name: member
        for parent in reversed(thing.__mro__)
        if parent.__module__.startswith("reactive_kafka")
        for name, member in vars(parent).items()
        if not name.startswith("_")
    }
    for name, member in sorted(members.items()):
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if inspect.isfunction(member):
            yield from _callable(f"{path}.{name}", member)
        else:
            yield f"{path}.{name}"


def _callable(path: str, thing: Any) -> Iterator[str]:
    """Its signature; a long one with each parameter on a line."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return
    text = _without_addresses(signature)
    if len(text) < LONG:
        yield path + text
        return
    for parameter in signature.parameters.values():
        kind = " by keyword" if parameter.kind is parameter.KEYWORD_ONLY else ""
        yield f"{path}({_without_addresses(parameter)}){kind}"
    if signature.return_annotation is not signature.empty:
        yield f"{path}() -> {signature.return_annotation!r}"


def _without_addresses(thing: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(thing))


def _configuration() -> Iterator[str]:
    for section in vars(keys).values():
        if isinstance(section, Section):
            title = section.title or "kafka"
            for key in section.keys.values():
                yield f"{title}.{key.name} = {key.default!r}: {key.kind.expects}"
    for prop in PROPERTIES:
        names = ", ".join(dict.fromkeys((prop.kafka, *prop.also, *prop.names)))
        yield f"client property {names} of {', '.join(sorted(prop.sides))}: {prop.kind.expects}"
    for name in REFUSED:
        yield f"client property {name}: refused"


def _metrics() -> Iterator[str]:
    for metric in sorted(CATALOGUE, key=lambda metric: metric.name):
        yield f"{metric.name} {metric.kind} {metric.unit or '-'} ({', '.join(metric.labels)})"


def _command_line() -> Iterator[str]:
    top = commands.make_context("reactive-kafka", [], resilient_parsing=True)
    yield from _parameters("reactive-kafka", commands)
    for name in sorted(MODULES):
        command = commands.get_command(top, name)
        if command is not None:
            yield from _command(f"reactive-kafka {name}", command)


def _command(path: str, command: click.Command) -> Iterator[str]:
    yield path
    yield from _parameters(path, command)
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _command(f"{path} {name}", inner)


def _parameters(path: str, command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        names = "/".join([*parameter.opts, *parameter.secondary_opts])
        if isinstance(parameter, click.Argument):
            names = (parameter.name or "").upper()
        facts = [parameter.type.name]
        if parameter.envvar:
            facts.append(f"${parameter.envvar}")
        if parameter.required:
            facts.append("required")
        if parameter.multiple:
            facts.append("several")
        yield f"{path} {names} ({', '.join(facts)})"


def _exit_codes() -> Iterator[str]:
    yield "0 success"
    for name, error in sorted(vars(cli_errors).items()):
        if inspect.isclass(error) and issubclass(error, click.ClickException):
            yield f"{error.exit_code} {name}"
    yield f"{click.UsageError.exit_code} UsageError"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(api())
    else:
        print(difference(FILE.read_text(), api()) or "nothing has changed")
