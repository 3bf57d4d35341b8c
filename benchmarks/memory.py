"""How much memory a process has held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

STATUS = "/proc/{}/status"


def peak_mb(pid: int | str = "self") -> float:
    """The largest resident memory of a process since its program began, in MB; without Linux only
    of this one.

    ``ru_maxrss`` will not do on Linux: it counts from the fork, so a small program shows the peak
    of its parent.
    """
    status = Path(STATUS.format(pid))
    if not status.exists():
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(kilobytes / (1e6 if sys.platform == "darwin" else 1e3), 1)
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) * 1024 / 1e6, 1)
    return 0.0


def resident_mb() -> float:
    """The resident memory of this process now, in MB; Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
