"""Runs protoc, which compiles ``.proto`` text. It is a process of its own.

The text may come from anywhere. In our process protoc would also write its messages to the standard
error, where they would miss the log and the error that we raise.
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
"""An error names so many problems, and counts the others."""


def protoc(roots: Sequence[Path], name: str, given: Any) -> Any:
    """Return the ``FileDescriptorSet`` of a file and its imports. Imports come first.

    Args:
        roots: Folders to look for imports in, in this order. The first one has the file itself.
        name: The path of the file in the first root.
        given: A ``FileDescriptorSet`` of files that can be imported if no root has them.

    Raises:
        FormatError: Protoc refuses the file. The text has protoc's own words.
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
    # The child finds grpc_tools where this process did. Python also imports from its working
    # directory, so that is one without modules.
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
        raise FormatError(_problems(done.stderr, folder) or f"protoc ended with {done.returncode}")


def _problems(output: str, folder: Path) -> str:
    """Return protoc's messages in one line. Paths are relative to the folder of the file."""
    lines = [line.strip().removeprefix(f"{folder}{os.sep}") for line in output.splitlines()]
    problems = [line for line in lines if line and ": warning: " not in line]
    more = f" (and {len(problems) - _MOST_LINES} more)" if len(problems) > _MOST_LINES else ""
    return "; ".join(line.rstrip(".") for line in problems[:_MOST_LINES]) + more
