"""The version of this package."""

from __future__ import annotations

VERSION = "0.1.0rc1"
"""The same as in ``pyproject.toml``. It is not asked of ``importlib.metadata``, which takes a
megabyte. And a package that runs from its sources is not installed.
"""
