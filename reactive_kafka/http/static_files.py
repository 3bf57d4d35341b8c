"""The script, the style and the icons of the page, as they are in the package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MEDIA_TYPES = {
    "page.js": "text/javascript",
    "elements.js": "text/javascript",
    "service.js": "text/javascript",
    "dialog.js": "text/javascript",
    "actions.js": "text/javascript",
    "record.js": "text/javascript",
    "members.js": "text/javascript",
    "spark.js": "text/javascript",
    "page.css": "text/css",
    "up.svg": "image/svg+xml",
    "down.svg": "image/svg+xml",
    "poison.svg": "image/svg+xml",
    "away.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file that the page loads."""

    content: bytes
    media_type: str


def static_file(name: str) -> StaticFile | None:
    """Return a file by its name, None if there is no such file."""
    return _read(name) if name in MEDIA_TYPES else None


@cache
def _read(name: str) -> StaticFile:
    path = files(__package__) / "static" / name
    return StaticFile(path.read_bytes(), MEDIA_TYPES[name])
