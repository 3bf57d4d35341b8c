"""Feeds the targets in turn: ``python -m tests.fuzz --minutes 10``, or one again: ``--target config
--seed 123``.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import traceback
from collections import Counter

from tests.fuzz.budget import Target, play
from tests.fuzz.targets import TARGETS

MOST_SHOWN = 3
"""Of failures that look the same, by the place that raised."""


def main(arguments: list[str] | None = None) -> int:
    """Play, and print what was found; 1 if anything was."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Feed every input from outside with noise."
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated"
    )
    parser.add_argument("--seed", type=int, help="play this seed only")
    parser.add_argument(
        "--first",
        type=int,
        default=int(time.time()) * 1000,
        help="the first seed; default: by the clock",
    )
    given = parser.parse_args(arguments)
    names = given.target or list(TARGETS)
    inputs, found = Counter[str](), Counter[str]()
    with contextlib.ExitStack() as stack:
        targets = {name: stack.enter_context(TARGETS[name]()) for name in names}
        if given.seed is not None:
            for name, target in targets.items():
                play(name, target, given.seed)
            return 0
        until, seed = time.monotonic() + 60 * given.minutes, given.first
        while time.monotonic() < until:
            for name, target in targets.items():
                place = _failure(name, target, seed)
                inputs[name] += 1
                if place is not None:
                    found[f"{name}: {place}"] += 1
                    if found[f"{name}: {place}"] <= MOST_SHOWN:
                        print(
                            f"  again: python -m tests.fuzz --target {name} --seed {seed}\n",
                            flush=True,
                        )
            seed += 1
    for name in names:
        print(f"{name:14} {inputs[name]:>9} inputs")
    for place, count in found.most_common():
        print(f"RED {count:>6}  {place}")
    return 1 if found else 0


def _failure(name: str, target: Target, seed: int) -> str | None:
    """The place that raised, which is printed; None: all was well."""
    try:
        play(name, target, seed)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"{name}: {type(error).__name__}: {ascii(str(error))[:300]}\n  at {frame.filename}:{frame.lineno}",
            flush=True,
        )
        return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
    return None


if __name__ == "__main__":
    sys.exit(main())
