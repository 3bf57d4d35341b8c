"""The Java that Spark runs on here, for tests that ask Java itself."""

from __future__ import annotations

import os
from pathlib import Path

from reactive_kafka.spark.session.driver import choose_java, find_javas


def java_program() -> Path:
    return choose_java(find_javas(os.environ)).home / "bin" / "java"
