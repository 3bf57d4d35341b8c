"""The names of a new project, made from the name of its folder. Pure."""

from __future__ import annotations

import keyword
import re
import sys
import unicodedata
from dataclasses import dataclass

_IMPORTED = frozenset(
    [
        "_pytest",
        "aiokafka",
        "annotated_types",
        "anyio",
        "async_timeout",
        "click",
        "h11",
        "idna",
        "iniconfig",
        "msgspec",
        "packaging",
        "pluggy",
        "prometheus_client",
        "py",
        "pydantic",
        "pydantic_core",
        "pygments",
        "pytest",
        "pytest_asyncio",
        "starlette",
        "typing_extensions",
        "typing_inspection",
        "uvicorn",
        "uvloop",
    ]
)
"""What this package and pytest import: a module of the project would be found instead of it."""
_TAKEN = (
    frozenset(sys.stdlib_module_names) | _IMPORTED | {"reactive_kafka", "tests", "test", "conftest"}
)


@dataclass(frozen=True, slots=True)
class ProjectNames:
    """What the parts of a project are called."""

    # Of the module with the App, and of the group.
    module: str
    # In pyproject.toml.
    package: str


def names_of(folder: str) -> ProjectNames | None:
    """Return the names for a folder, or None if it has no ASCII letter or digit."""
    # This takes the accents off letters.
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", plain.lower())
    if not words:
        return None
    module = "_".join(words)
    if module[0].isdigit():
        module = f"app_{module}"
    if module in _TAKEN or keyword.iskeyword(module) or keyword.issoftkeyword(module):
        # A module of this name would hide another one, or could not be imported.
        module = f"{module}_service"
    return ProjectNames(module, module.replace("_", "-"))
