"""What decoding an order of 121 bytes of JSON takes by itself, by what reads it and what it
becomes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LOADS = "`json.loads`"
KINDS = ("`dict`", "a dataclass", "a pydantic model", "a `msgspec.Struct`")
LIBRARY = "{}: the library alone"
OURS = "{}: the decoder of a channel"
NAMES = (LOADS, *(text.format(kind) for kind in KINDS for text in (LIBRARY, OURS)))
ORDERS = 500
RUNS = 40


def decoders() -> dict[str, Callable[[bytes], Any]]:
    """Name -> what decodes an order; nothing without the packages."""
    try:
        import msgspec
        from pydantic import TypeAdapter

        from benchmarks.contenders.ours_formats import OrderData, OrderStruct
        from benchmarks.orders import OrderModel
        from reactive_kafka.formats import decoder_for
    except ImportError:
        return {}
    alone = (
        msgspec.json.Decoder().decode,
        msgspec.json.Decoder(OrderData).decode,
        TypeAdapter(OrderModel).validator.validate_json,
        msgspec.json.Decoder(OrderStruct).decode,
    )
    found: dict[str, Any] = {LOADS: json.loads}
    for kind, name, read in zip(
        (dict[str, Any], OrderData, OrderModel, OrderStruct), KINDS, alone, strict=True
    ):
        found |= {LIBRARY.format(name): read, OURS.format(name): decoder_for(kind, "json")}
    return found


def taken() -> dict[str, float]:
    """Nanoseconds an order, of the best of some runs; nothing without the packages."""
    every = decoders()
    if not every:
        return {}
    from benchmarks.orders import as_json

    orders = [as_json(number) for number in range(ORDERS)]
    return {name: round(_best(decode, orders), 1) for name, decode in every.items()}


def _best(decode: Callable[[bytes], object], orders: Sequence[bytes]) -> float:
    took = []
    for _ in range(RUNS):
        began = time.process_time()
        for order in orders:
            decode(order)
        took.append(time.process_time() - began)
    return min(took) / len(orders) * 1e9


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a row a decoder, a column a Python that has the packages."""
    whole = [one for one in figures if one.get("decoding")]
    lines = [
        f"| ns an order | {' | '.join(one['python'] for one in whole)} |",
        f"|---|{'---:|' * len(whole)}",
    ]
    for name in NAMES:
        cells = " | ".join(f"{one['decoding'][name]:.0f}" for one in whole)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)
