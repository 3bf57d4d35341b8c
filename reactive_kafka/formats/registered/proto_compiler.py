"""protoc, which makes serialized files of ``.proto`` text; it runs as a process, as the text may be
anybody's.

In this process it would write what it finds to the standard error, past the log and past the error
that we raise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reactive_kafka.errors import MissingExtraError
from reactive_kafka.formats.format_names import FormatError

_TIMEOUT_S = 60.0
_MOST_LINES = 5
"""So many problems are in an error; the others are counted."""


def protoc(roots: Sequence[Path], name: str, given: Any) -> Any:
    """The ``FileDescriptorSet`` of a file and of all that it imports, these first.

    Args:
        roots: Where imports are looked for, in this order. The first one has the file itself.
        name: The file, below the first root.
        given: A ``FileDescriptorSet`` of files that can be imported where no root has them.

    Raises:
        FormatError: protoc does not take it; the text has protoc's own words.
        MissingExtraError: grpcio-tools is not installed.
    """
    try:
        import grpc_tools
    except ImportError as error:
        raise MissingExtraError("reading .proto files", "protobuf") from error
    googles = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="reactive-kafka-") as scratch:
        made = Path(scratch, "made")
        imported = Path(scratch, "given")
        imported.write_bytes(given.SerializeToString())
        _run(
            [
                *(f"-I{root}" for root in (*roots, googles)),
                f"--descriptor_set_in={imported}",
                f"--descriptor_set_out={made}",
                "--include_imports",
                str(roots[0] / name),
            ],
            roots[0],
            scratch,
        )
        return type(given).FromString(made.read_bytes())


def _run(arguments: list[str], folder: Path, scratch: str) -> None:
    # The child finds grpc_tools where this process did. Its working directory is empty: nothing is
    # imported from there.
    search_path = os.pathsep.join(str(Path(place).absolute()) for place in sys.path if place)
    try:
        done = subprocess.run(
            [sys.executable or "python3", "-m", "grpc_tools.protoc", *arguments],
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": search_path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FormatError(f"protoc cannot be run: {type(error).__name__}") from error
    if done.returncode:
        raise FormatError(_said(done.stderr, folder) or f"protoc ended with {done.returncode}")


def _said(output: str, folder: Path) -> str:
    """What protoc has written, in one line. Paths are below the folder of the file."""
    lines = [line.strip().removeprefix(f"{folder}{os.sep}") for line in output.splitlines()]
    problems = [line for line in lines if line and ": warning: " not in line]
    more = f" (and {len(problems) - _MOST_LINES} more)" if len(problems) > _MOST_LINES else ""
    return "; ".join(line.rstrip(".") for line in problems[:_MOST_LINES]) + more
