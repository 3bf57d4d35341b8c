"""How a handler is called in one run: its function, what is around each call, and where its results go."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from math import inf

from anyio import CapacityLimiter

from reactive_kafka.channel.spec import MakeWorkers
from reactive_kafka.delivery.attempts import BatchDispatcher
from reactive_kafka.delivery.calls import Invocation
from reactive_kafka.delivery.records import Dispatcher
from reactive_kafka.delivery.workers import Workers, WorkerSetup, WorkerSignals
from reactive_kafka.handlers.calls import as_async
from reactive_kafka.handlers.dependencies import Dependencies
from reactive_kafka.handlers.middleware import around_send, generating, in_middleware, takes_message
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.handlers.spec import IncomingSpec
from reactive_kafka.outgoing.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.memory import Target
from reactive_kafka.outgoing.outputs import Outputs, TransactionalOutputs
from reactive_kafka.tracing.calls import CallSpans
from reactive_kafka.verdicts.hook import Call


def handler_workers(
    spec: IncomingSpec,
    handler: HandlerSpec,
    targets: Sequence[Target],
    dependencies: Dependencies,
    context: Context,
    *,
    awaits_commits: bool,
    spans: CallSpans | None = None,
) -> MakeWorkers:
    """What makes the workers of a channel with this handler, whose results go to *targets*; they run in *context*."""
    is_blocking, handler = not handler.is_async, dependencies.fill(handler)
    kind = BatchDispatcher if handler.shape is Shape.BATCH else Dispatcher
    yields, around, settles = handler.yields, around_send(handler.send_middleware), spec.settings.ack == "post"
    outputs = Outputs(targets, settles=settles, yields=yields, around=around) if targets else None
    make_outputs = partial(TransactionalOutputs, targets, yields=yields, around=around)
    call = call_of(handler)

    def make(signals: WorkerSignals, setup: WorkerSetup) -> Workers:
        invocation = Invocation(
            call=call,
            decode=spec.decode,
            decode_record=spec.decode_record,
            wants_message=takes_message(handler),
            ack=spec.settings.ack,
            # Transactions are a session's, as its partitions are.
            emit=make_outputs(transactions=setup.hook) if isinstance(setup.hook, ExactlyOnce) else outputs,
            refusal=spec.refusal,
            decodes_keys=spec.decode_key is not None,
            is_blocking=is_blocking,
            leaves_threads=not handler.is_async,
            around=None if spans is None else spans.around,
            awaits_commits=awaits_commits,
        )
        # A worker's task would otherwise inherit the context of whoever wakes it, which may be a handler that
        # resumes a channel, or acks what another one waits for.
        spawn = lambda task, name: context.copy().run(setup.spawn, task, name)  # noqa: E731
        return kind(replace(setup, spawn=spawn), invocation, signals)

    return make


def call_of(handler: HandlerSpec) -> Call:
    """The call of a handler, with what is around it."""
    if handler.yields:
        return generating(handler)
    # The workers are the limit: a thread that never returns must not keep a place in another one.
    function = handler.function if handler.is_async else as_async(handler.function, CapacityLimiter(inf))
    return in_middleware(handler, function)
