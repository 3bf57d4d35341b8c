"""Delta's jars, fetched once as the page about sinks says it, and the settings that the page
shows.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import tomllib
from pathlib import Path

from reactive_kafka.broker.jar_hashes import SHA256
from reactive_kafka.broker.jars import cache_directory, not_as_pinned
from tests import pages

PAGE = pages.page("examples/sinks/README.md")


def delta_conf() -> dict[str, str]:
    """Spark's properties for Delta; the jars are those of this machine's cache."""
    (shown,) = (block.text for block in pages.blocks(PAGE, "toml") if "delta" in block.text)
    conf: dict[str, str] = tomllib.loads(shown)["spark"]["conf"]
    jars = _fetched()
    conf["spark.jars"] = ",".join(
        str(jars / Path(jar).name) for jar in conf["spark.jars"].split(",")
    )
    return conf


def _fetched() -> Path:
    commands = re.findall(r"^mvn .*$", PAGE.read_text(), re.MULTILINE)
    name = "-".join(re.findall(r"-Dartifact=\S*:(\S+)", "\n".join(commands)))
    target = cache_directory() / f"delta-{name}"
    if not target.is_dir():
        cache_directory().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
            for command in commands:
                done = subprocess.run(
                    shlex.split(command), cwd=scratch, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}"
            Path(scratch, "jars").rename(target)
    assert not not_as_pinned(target.glob("*.jar"), SHA256), f"remove {target}"
    return target
