"""Which application this is: its name, its version, its host."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from reactive_kafka.observe.facts import ApplicationIdentity
from reactive_kafka.version import VERSION


def identity_of(module: str, name: str | None, uptime_s: float | None) -> ApplicationIdentity:
    """Return the identity of the application whose ``App`` was created in *module*.

    Args:
        module: The name of a module. ``__main__`` becomes the name of the program.
        name: The name that the configuration gives it, if it does.
        uptime_s: How long it has been running.
    """
    if module == "__main__":
        module = _program()
    package = sys.modules.get(module.partition(".")[0])
    own_version = getattr(package, "__version__", None)
    return ApplicationIdentity(
        name=name or module or "application",
        version=own_version if isinstance(own_version, str) else None,
        library_version=VERSION,
        host=socket.gethostname(),
        pid=os.getpid(),
        uptime_s=uptime_s,
    )


def _program() -> str:
    """Return the module name of the running program (``python shop.py``, ``python -m shop``)."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else ""
