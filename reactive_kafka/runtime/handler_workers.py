"""Makes the workers of a channel with handlers: how these are called, where results go."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, TypeGuard

from anyio import CapacityLimiter

from reactive_kafka.channel.blueprint import MakeWorkers
from reactive_kafka.config.kinds import show_duration
from reactive_kafka.delivery.assembly import (
    batch_workers,
    broadcast_workers,
    first_match_workers,
    record_workers,
)
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.runners.choosing import Branch
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers.interface import (
    ChannelWorkers,
    WorkerSetup,
)
from reactive_kafka.handlers.blocking_calls import as_async
from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.handlers.middleware import around_send, generating, in_middleware, takes_message
from reactive_kafka.handlers.signature import Shape
from reactive_kafka.observe.events import StaleResultDropped
from reactive_kafka.outgoing.fresh_outputs import FreshOutputs
from reactive_kafka.outgoing.handler_outputs import Outputs, TransactionalOutputs
from reactive_kafka.outgoing.outbox_outputs import OutboxOutputs
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel
from reactive_kafka.outgoing.target import Target
from reactive_kafka.outgoing.transactions.exactly_once import ExactlyOnce
from reactive_kafka.planning.channel_plans import HandlerPlan, IncomingPlan, MemoryPlan, is_chosen
from reactive_kafka.tracing.channel_watch import CallWatch
from reactive_kafka.verdicts.attempt_time import within
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.unawaited import checking


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSurroundings:
    """What the handlers of one run share."""

    dependencies: Dependencies
    # Name of an outgoing channel -> the channel.
    target: Callable[[str], Target]
    # Handlers run in it. A worker's task would otherwise inherit the context of the code that wakes
    # it: of a handler that resumes a channel, or that acks what another handler waits for.
    context: Context
    # The application has emitters: calls raise if a send was not awaited.
    has_emitters: bool


def handler_workers(
    plan: IncomingPlan | MemoryPlan,
    surroundings: HandlerSurroundings,
    skipping: Skipping,
    *,
    awaits_commits: bool,
    watch: CallWatch | None,
) -> MakeWorkers:
    """Return what makes the workers of a channel with handlers, for each of its sessions.

    Args:
        awaits_commits: Each record is settled by itself when its handler has returned.
        watch: Watches each call. None: nothing does.
    """
    handlers = [
        replace(each, handler=surroundings.dependencies.fill(each.handler))
        for each in plan.handlers
    ]
    reading = plan.reading
    # The values of a memory channel are objects: there is nothing to decode.
    is_late = isinstance(plan, IncomingPlan) and (
        plan.filters_undecoded or any(each.sees_undecoded for each in plan.handlers)
    )
    common = Invocation(
        call=_call_of(handlers[0], None, has_emitters=surroundings.has_emitters),
        decode=reading.decode,
        decode_record=reading.decode_record,
        wants_message=False,
        ack=plan.settings.ack,
        refusal=reading.refusal,
        decodes_keys=reading.decode_key is not None,
        decodes_late=is_late,
        is_blocking=not all(each.handler.is_async for each in plan.handlers),
        leaves_threads=not all(each.handler.is_async for each in handlers),
        awaits_commits=awaits_commits,
    )
    invocations = [_invocation(common, each, surroundings, watch) for each in handlers]
    is_batch = handlers[0].handler.shape is Shape.BATCH
    chooses = is_chosen(plan.handlers) or skipping.is_needed

    def make(setup: WorkerSetup) -> ChannelWorkers:
        made = [invocation(setup) for invocation in invocations]
        if is_batch:
            return batch_workers(
                setup, surroundings.context, made[0], skipping if chooses else None
            )
        # Where the only handler takes every record, nothing is asked for each record.
        if not chooses:
            return record_workers(setup, surroundings.context, made[0])
        branches = [
            Branch(
                invocation,
                each.retry,
                each.when,
                each.payload_types,
                each.read,
                sees_undecoded=is_late and each.sees_undecoded,
            )
            for invocation, each in zip(made, handlers, strict=True)
        ]
        if plan.is_broadcast:
            return broadcast_workers(setup, surroundings.context, branches, skipping)
        return first_match_workers(setup, surroundings.context, branches, skipping)

    return make


def _invocation(
    common: Invocation,
    plan: HandlerPlan,
    surroundings: HandlerSurroundings,
    watch: CallWatch | None,
) -> Callable[[WorkerSetup], Invocation]:
    """Return what makes the calls of one handler, for each of the channel's sessions."""
    handler = plan.handler
    targets = [surroundings.target(name) for name in plan.outgoing]
    around = around_send(plan.send_middleware)
    outputs: Outputs | OutboxOutputs | None = None
    outboxes = [target for target in targets if _is_outbox(target)]
    outbox = None
    if outboxes:
        outbox = OutboxOutputs(
            outboxes, yields=handler.yields, around=around, returns=handler.returns
        )
        outputs = outbox
    elif targets:
        outputs = Outputs(
            targets,
            settles=common.ack == "post",
            yields=handler.yields,
            around=around,
            returns=handler.returns,
        )
    make_transactional = partial(
        TransactionalOutputs,
        targets,
        yields=handler.yields,
        around=around,
        returns=handler.returns,
    )
    invocation = replace(
        common, wants_message=takes_message(handler, plan.middleware), emit=outputs
    )

    has_emitters = surroundings.has_emitters or outbox is not None

    def make(setup: WorkerSetup) -> Invocation:
        watched: Callable[[Call], Call] | None = None
        if watch is not None:
            watched = partial(watch.around, durations=setup.totals.durations, times=setup.times)
        if outbox is not None:
            watched = _nested(watched, outbox.around)
        limit = _attempt_limit(setup, plan)
        made = replace(
            invocation,
            call=_call_of(plan, limit, has_emitters=has_emitters),
            around=_nested(setup.origins.around, watched),
            acks_by_message=setup.channel.watch is not None,
        )
        # Transactions belong to a session, as its partitions do.
        hook = setup.acknowledger.hook
        if targets and isinstance(hook, ExactlyOnce):
            return replace(made, emit=make_transactional(transactions=hook))
        # The transaction of an outbox is refused once its partition is gone.
        if isinstance(outputs, Outputs) and setup.settings.stale_results == "drop":
            dropped = partial(_dropped, setup)
            return replace(made, emit=FreshOutputs(outputs, yields=handler.yields, dropped=dropped))
        return made

    return make


def _is_outbox(target: Target) -> TypeGuard[OutgoingChannel]:
    return isinstance(target, OutgoingChannel) and target.settings.outbox


def _nested(
    outer: Callable[[Call], Call] | None, inner: Callable[[Call], Call] | None
) -> Callable[[Call], Call] | None:
    """Return what puts *outer* around what *inner* puts around a call; either may be missing."""
    if outer is None or inner is None:
        return outer or inner
    return lambda call: outer(inner(call))


def _dropped(setup: WorkerSetup, message: Message[Any]) -> None:
    """Count and report a result that is not sent."""
    setup.totals.stale_results += 1
    setup.channel.observer.on(
        StaleResultDropped(
            channel=setup.settings.name, partition=message.topic_partition, offset=message.offset
        )
    )


def _attempt_limit(setup: WorkerSetup, plan: HandlerPlan) -> Callable[[Call], Call] | None:
    """Return what puts ``attempt_timeout`` around a call of a handler; None: there is none."""
    limit_s = setup.settings.attempt_timeout_s
    if limit_s is None:
        return None
    text = f"the handler took longer than attempt_timeout = {show_duration(limit_s)}"
    runs_in_thread = not plan.handler.is_async

    def timed_out() -> BaseException:
        if not runs_in_thread:
            return TimeoutError(text)
        setup.totals.abandoned += 1
        return TimeoutError(f"{text}; its thread cannot be cancelled and still runs")

    return partial(within, limit_s=limit_s, timed_out=timed_out)


def _call_of(
    plan: HandlerPlan, limit: Callable[[Call], Call] | None, *, has_emitters: bool
) -> Call:
    """Return the call of a handler, with its middleware around it, and *limit* around both."""
    handler = plan.handler
    if handler.yields:
        make_run = generating(handler, plan.middleware, has_emitters=has_emitters)
        return make_run if limit is None else _limiting_run(make_run, limit)
    function = handler.function
    if not handler.is_async:
        # The workers are the limit of calls in threads. With a limit on the threads, one that never
        # returns would keep a place from other channels.
        function = as_async(handler.function, CapacityLimiter(inf))
    call = in_middleware(handler, plan.middleware, function)
    if has_emitters:
        call = checking(call, f"handler {handler.name}", in_thread=not handler.is_async)
    return call if limit is None else limit(call)


def _limiting_run(make_run: Call, limit: Callable[[Call], Call]) -> Call:
    """Return *make_run* with *limit* around the run that it returns, which is the attempt."""

    async def call(given: Any) -> Any:
        return limit(await make_run(given))

    return call
