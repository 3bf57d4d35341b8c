"""How a Python was built, and how fast it is: figures of Python code carry over to builds of the
same kind only.

``python -m benchmarks.build`` prints it of the Python that runs it, as JSON.
"""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass
from pathlib import Path

LOOPS = 200_000
RUNS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a Python is.

    Args:
        python: Its executable.
        version: Such as ``3.11.7``.
        compiler: What compiled it, with its version.
        flags: The optimisation flags of the compiler.
        is_profiled: It was compiled with a profile of its own runs (``--enable-optimizations``).
        is_lto: It was optimised again when it was linked (``--with-lto``).
        is_debians: It is a package of Debian or Ubuntu, built with a profile without saying so in
            its configuration.
        loop_ns: What the calibrating loop takes a turn.
    """

    python: str
    version: str
    compiler: str
    flags: str
    is_profiled: bool
    is_lto: bool
    is_debians: bool
    loop_ns: float

    @property
    def is_optimised(self) -> bool:
        """Whether a profile has guided the compiler, as in the official images and in
        distributions.
        """
        return self.is_profiled or self.is_debians

    @property
    def name(self) -> str:
        """What tables call it."""
        kind = "Debian" if self.is_debians else "optimised" if self.is_profiled else "plain"
        return f"{self.version}, {kind}"

    @property
    def how(self) -> str:
        """How it was optimised, in words."""
        if self.is_debians:
            return "package of the distribution, built with a profile"
        said = "--enable-optimizations " * self.is_profiled + "--with-lto" * self.is_lto
        return said.strip() or "neither --enable-optimizations nor --with-lto"


def of(python: str) -> Build:
    """Ask another Python."""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [python, "-m", __name__], cwd=root, capture_output=True, text=True, check=True
    )
    return Build(**json.loads(done.stdout))


def mine() -> Build:
    """Of the Python that runs this."""
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    flags = " ".join(
        str(sysconfig.get_config_var(name) or "") for name in ("PY_CFLAGS", "PY_CFLAGS_NODIST")
    )
    # Debian patches its schemes of installation in; its configuration is that of another build of
    # the same package.
    is_debians = "deb_system" in sysconfig.get_scheme_names()
    return Build(
        python=sys.executable,
        version=platform.python_version(),
        compiler=platform.python_compiler(),
        flags=optimising(flags),
        is_profiled="--enable-optimizations" in configured or "-fprofile-use" in flags,
        is_lto="--with-lto" in configured or "-flto" in flags,
        is_debians=is_debians,
        loop_ns=round(calibrate(), 1),
    )


def optimising(flags: str) -> str:
    """Those of a compiler's flags that make code faster or slower, each once."""
    wanted = ("-O", "-f", "-m", "-DNDEBUG", "-D_FORTIFY")
    return " ".join(dict.fromkeys(flag for flag in shlex.split(flags) if flag.startswith(wanted)))


class _Sum:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> None:
        self.total += number


def calibrate() -> float:
    """Nanoseconds that a turn of a loop takes with a call and an attribute; of the best of some
    runs.
    """
    took = []
    for _ in range(RUNS):
        sums = _Sum()
        began = time.perf_counter()
        for number in range(LOOPS):
            sums.add(number)
        took.append(time.perf_counter() - began)
    return min(took) / LOOPS * 1e9


if __name__ == "__main__":
    print(json.dumps(asdict(mine())))
