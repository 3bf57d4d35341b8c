"""A flame graph: a box a function, as wide as its share of the samples, upon the one that has
called it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.plots import svg
from benchmarks.plots.stacks import STAGES, Node, Stack, tree

WIDTH = 1000
SIDE = 12
ROW = 18
LEAST_PX = 1.0


def drawn(stacks: Mapping[Stack, int], title: str, cpu_us: float) -> str:
    """The graph as a file.

    Args:
        cpu_us: What a record took in all, in µs: boxes say how much of it is theirs.
    """
    root = tree(stacks)
    px = (WIDTH - 2 * SIDE) / (root.count or 1)
    depth = _depth(root, px)
    names, top = svg.legend(
        SIDE, 46, WIDTH - 2 * SIDE, list(zip(STAGES, range(len(STAGES)), strict=True))
    )
    bottom = top + depth * ROW
    body = [svg.text(SIDE, 24, title, kind="title"), *names]
    body += _boxes(root, SIDE, bottom - ROW, px, cpu_us / (root.count or 1))
    return svg.picture(WIDTH, round(bottom) + SIDE, title, body)


def _depth(node: Node, px: float) -> int:
    """How many boxes stand upon each other."""
    return 1 + max(
        (_depth(one, px) for one in node.calls.values() if one.count * px >= LEAST_PX), default=0
    )


def _boxes(node: Node, x: float, y: float, px: float, us: float) -> Iterator[str]:
    width = node.count * px
    if width < LEAST_PX:
        return
    tip = f"{node.name}: {node.count * us:.3f} µs a record"
    label = node.name.rpartition(":")[2].rpartition(".<locals>.")[2]
    yield svg.box(x, y, width, ROW, STAGES.index(node.stage), tip, label)
    for name in sorted(node.calls):
        yield from _boxes(node.calls[name], x, y - ROW, px, us)
        x += node.calls[name].count * px
