"""How a handler is called in one run: its function, what is around each call, and where its results
go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from math import inf

from anyio import CapacityLimiter

from reactive_kafka.channel.spec import MakeWorkers
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
    WorkerSignals,
)
from reactive_kafka.handlers.calls import as_async
from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.handlers.matches import BranchSpec
from reactive_kafka.handlers.middleware import around_send, generating, in_middleware, takes_message
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.handlers.spec import IncomingSpec
from reactive_kafka.outgoing.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.memory import Target
from reactive_kafka.outgoing.outputs import Outputs, TransactionalOutputs
from reactive_kafka.tracing.calls import CallSpans
from reactive_kafka.verdicts.hook import Call
from reactive_kafka.verdicts.unawaited import checking


def handler_workers(
    spec: IncomingSpec,
    target: Callable[[str], Target],
    dependencies: Dependencies,
    context: Context,
    skipping: Skipping,
    *,
    awaits_commits: bool,
    has_emitters: bool,
    spans: CallSpans | None = None,
) -> MakeWorkers:
    """What makes the workers of a channel with handlers, whose results go where *target* says; they
    run in *context*.

    Where one handler takes every record, they choose nothing.
    """
    branches = spec.branches or tuple(
        BranchSpec(one, spec.outgoing, spec.settings.retry) for one in spec.handlers
    )
    filled = [replace(one, handler=dependencies.fill(one.handler)) for one in branches]
    common = Invocation(
        call=call_of(filled[0].handler, has_emitters=has_emitters),
        decode=spec.decode,
        decode_record=spec.decode_record,
        wants_message=False,
        ack=spec.settings.ack,
        refusal=spec.refusal,
        decodes_keys=spec.decode_key is not None,
        is_blocking=not all(one.handler.is_async for one in branches),
        leaves_threads=not all(one.handler.is_async for one in filled),
        around=None if spans is None else spans.around,
        awaits_commits=awaits_commits,
    )
    invocations = [
        _invocation(common, one, [target(name) for name in one.outgoing], has_emitters=has_emitters)
        for one in filled
    ]
    is_batch = branches[0].handler.shape is Shape.BATCH
    is_chosen = bool(spec.branches) or skipping.is_needed
    choosing_workers = broadcast_workers if spec.is_shared else first_match_workers

    def make(signals: WorkerSignals, setup: WorkerSetup) -> ChannelWorkers:
        # A worker's task would otherwise inherit the context of whoever wakes it, which may be a
        # handler that resumes a channel, or acks what another one waits for.
        own = replace(setup, context=context)
        made = [invocation(setup) for invocation in invocations]
        if is_batch:
            return batch_workers(own, signals, made[0], skipping if is_chosen else None)
        if not is_chosen:
            return record_workers(own, signals, made[0])
        several = [
            Branch(invocation, one.retry, one.when, one.kinds, one.read)
            for invocation, one in zip(made, branches, strict=True)
        ]
        return choosing_workers(own, signals, several, skipping)

    return make


def _invocation(
    common: Invocation, branch: BranchSpec, targets: Sequence[Target], *, has_emitters: bool
) -> Callable[[WorkerSetup], Invocation]:
    """How one handler of a channel is called, in each of the channel's sessions."""
    handler = branch.handler
    yields = handler.yields
    around = around_send(handler.send_middleware)
    settles = common.ack == "post"
    outputs = None
    if targets:
        outputs = Outputs(
            targets, settles=settles, yields=yields, around=around, returns=handler.returns
        )
    make_outputs = partial(
        TransactionalOutputs, targets, yields=yields, around=around, returns=handler.returns
    )
    call = call_of(handler, has_emitters=has_emitters)
    invocation = replace(common, call=call, wants_message=takes_message(handler), emit=outputs)

    def make(setup: WorkerSetup) -> Invocation:
        made = replace(invocation, around=_both(setup.around, invocation.around))
        # Transactions are a session's, as its partitions are.
        if targets and isinstance(setup.hook, ExactlyOnce):
            return replace(made, emit=make_outputs(transactions=setup.hook))
        return made

    return make


def _both(
    outer: Callable[[Call], Call] | None, inner: Callable[[Call], Call] | None
) -> Callable[[Call], Call] | None:
    if outer is None or inner is None:
        return outer or inner
    return lambda call: outer(inner(call))


def call_of(handler: HandlerSpec, *, has_emitters: bool) -> Call:
    """The call of a handler, with what is around it; where there are emitters it raises if a send
    was not awaited.
    """
    if handler.yields:
        return generating(handler, has_emitters=has_emitters)
    # The workers are the limit: a thread that never returns must not keep a place in another one.
    function = (
        handler.function if handler.is_async else as_async(handler.function, CapacityLimiter(inf))
    )
    call = in_middleware(handler, function)
    if not has_emitters:
        return call
    return checking(call, f"handler {handler.name}", in_thread=not handler.is_async)
