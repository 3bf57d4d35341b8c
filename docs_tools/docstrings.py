"""Shows names that docstrings mark as Sphinx does, such as :class:`App`, as code.

Griffe, which reads the docstrings for the site, loads this module as an extension.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc):`(~?)([\w.]+)`")


class RolesAsCode(griffe.Extension):
    """Replaces each role by the name as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_as_code, obj.docstring.value)


def _as_code(match: re.Match[str]) -> str:
    name = match[2].rpartition(".")[2] if match[1] else match[2]
    return f"`{name}`"
