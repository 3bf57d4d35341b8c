"""What we promise about the figures. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from benchmarks import plan
from benchmarks.figures import CPU, RATE, RSS
from benchmarks.gauges import plan as gauges


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a figure of a row is to be, over the rounds: see :data:`benchmarks.figures.BEST`.

    Args:
        row: Whose figure.
        figure: Its name.
        beside: The row whose same figure it is divided by; None: the figure itself counts.
        least: It is to be at least this.
        most: It is to be at most this.
    """

    row: str
    figure: str = RATE
    beside: str | None = None
    least: float | None = None
    most: float | None = None


FASTER = (
    Goal(row=plan.OURS_MESSAGE, beside=plan.GETMANY, least=1.25),
    Goal(row=plan.OURS_BYTES, beside=plan.GETMANY, least=1.4),
    Goal(row=plan.OURS_BATCH, beside=plan.GETMANY, least=1.5),
    Goal(row=plan.OURS_BATCH, beside=plan.FASTSTREAM_BATCH, least=3.0),
    Goal(row=plan.OURS_MESSAGE, beside=plan.ASYNC_FOR, least=3.0),
    Goal(row=plan.OURS_BYTES, beside=plan.ASYNC_FOR, least=3.0),
    Goal(row=plan.OURS_MESSAGE_16, beside=plan.GETMANY_16, least=1.25),
    Goal(row=plan.OURS_BYTES_16, beside=plan.GETMANY_16, least=1.4),
    Goal(row=plan.OURS_BATCH_16, beside=plan.GETMANY_16, least=1.5),
    Goal(row=plan.OURS_MESSAGE_100, beside=plan.GETMANY_100, least=1.25),
    Goal(row=plan.OURS_BYTES_100, beside=plan.GETMANY_100, least=1.4),
    Goal(row=plan.OURS_AT_ONCE_100, beside=plan.GETMANY_100, least=1.35),
    Goal(row=plan.OURS_MESSAGE_1000, beside=plan.GETMANY_1000, least=1.25),
    Goal(row=plan.OURS_BYTES_1000, beside=plan.GETMANY_1000, least=1.4),
    Goal(row=plan.OURS_DICT, beside=plan.GETMANY_JSON, least=2.4),
    Goal(row=plan.OURS_DATACLASS, beside=plan.GETMANY_JSON, least=2.2),
    Goal(row=plan.OURS_PYDANTIC, beside=plan.GETMANY_JSON, least=1.6),
    Goal(row=plan.OURS_STRUCT, beside=plan.GETMANY_JSON, least=2.8),
    Goal(row=plan.OURS_WAITING[256], beside=plan.SEQUENTIAL, least=150.0),
    # What is reached and held; wanted are 4 times for the emitter and 3 for the chain.
    Goal(row=plan.OURS_EMIT, beside=plan.RAW_SEND, least=3.5),
    Goal(row=plan.OURS_EMIT, beside=plan.CONFLUENT, least=0.9),
    Goal(row=plan.OURS_CHAIN, beside=plan.RAW_SEND, least=2.0),
)

SCALES = (
    *(
        Goal(row=name, figure=CPU, most=1.3)
        for name in (*plan.OURS_BY_KEY.values(), plan.OURS_KEYLESS)
    ),
    *(
        Goal(row=plan.OURS_BY_KEY[keys], figure=CPU, beside=plan.OURS_BY_KEY[10], most=1.3)
        for keys in (10_000, 1_000_000)
    ),
    *chain.from_iterable(
        (
            Goal(row=plan.OURS_WAITING[at_once], least=70_000),
            Goal(row=plan.OURS_WAITING[at_once], figure=CPU, most=12),
        )
        for at_once in (1_000, 10_000)
    ),
    *(Goal(row=name, figure=CPU, most=0.9) for name in plan.OURS_BEHIND.values()),
    Goal(row=plan.OURS_BEHIND[1_000_000], figure=RSS, most=81),
)

GAUGED = (
    Goal(row=gauges.KEPT_ACKS[1], figure=gauges.TICK_MS, most=5),
    Goal(row=gauges.KEPT_ACKS[10_000], figure=gauges.TICK_MS, most=5),
    *chain.from_iterable(
        (
            Goal(
                row=ours,
                figure=gauges.P50,
                beside=gauges.RAW_LATENCY[rate],
                most=1.25 if rate == 10_000 else 1.1,
            ),
            Goal(row=ours, figure=gauges.P99, beside=gauges.RAW_LATENCY[rate], most=1.25),
        )
        for rate, ours in gauges.OURS_LATENCY.items()
    ),
    Goal(row=gauges.START[1], figure=gauges.FIRST_S, most=0.48),
    Goal(row=gauges.START[100], figure=gauges.FIRST_S, most=1.0),
    Goal(row=gauges.IDLE[1], figure=gauges.CORE, most=0.6),
    Goal(row=gauges.IDLE[1], figure=gauges.RESIDENT, most=60),
    Goal(row=gauges.IDLE[100], figure=gauges.CORE, most=3.5),
    Goal(row=gauges.IDLE[100], figure=gauges.RESIDENT, most=75),
    Goal(row=gauges.OURS_REBALANCE, figure=gauges.FIRST_S, most=2),
    Goal(row=gauges.OURS_REBALANCE, figure=gauges.LAG_P99, most=50),
)

GOALS = (*FASTER, *SCALES, *GAUGED)
