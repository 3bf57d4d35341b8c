"""How a function handles an incoming channel that is added while the application runs. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.exactly_once import exactly_once, reads_transactions
from reactive_kafka.handlers.incoming import incoming_spec
from reactive_kafka.handlers.matches import Incoming, Match, misfits, unused
from reactive_kafka.handlers.registry import Registry, unknown
from reactive_kafka.handlers.signature import Shape, draft_handler, name_and_place
from reactive_kafka.handlers.spec import (
    MADE,
    AppSpec,
    IncomingSpec,
    check_named,
    check_ordering,
    tried,
)


def added(
    who: str,
    function: Callable[..., Any],
    decorated: Incoming,
    to: Sequence[str],
    registry: Registry,
    settings: Settings,
    app: AppSpec,
) -> tuple[IncomingSpec, list[str]]:
    """How *function* handles a channel of *settings*, and what is odd about that. ConfigError: all
    that does not fit.

    It sends *to* these channels, and to those that it is decorated for.
    """
    entry = registry.known(function)
    problems = list[str]()
    draft = entry.draft or draft_handler(function)
    one = settings.incoming[decorated.channel]
    who = f"{who} with {name_and_place(function)}"
    to = tuple(dict.fromkeys((*entry.outgoing, *to)))
    strange = [name for name in to if name not in settings.outgoing and name not in settings.memory]
    problems += [unknown(who, "outgoing", name, settings) for name in strange]
    handler = tried(who, problems, draft.spec, bool(to))
    # Around it is what is where it was declared.
    own = entry.incoming[0] if entry.incoming else decorated
    match = Match(who, decorated, None if handler is None else own.layered(handler), to)
    if match.handler is not None and match.handler.needs:
        instead = "configure its channel with enabled = false, and start that"
        problems.append(f"{who}: it has dependencies, which are made at the start: {instead}")
    if match.handler is not None and match.handler.shape is Shape.BATCH:
        check_ordering(match, one, problems)
    problems += misfits([match], one, are_objects=False)
    spec = incoming_spec([match], one, problems)
    check_named(one, problems, by=MADE)
    if not problems:
        spec = exactly_once(reads_transactions(spec, app.outgoing), who, app.outgoing, problems)
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    dropped = None if to else draft.dropped()
    return spec, [*filter(None, [dropped]), *unused(one, [match])]
