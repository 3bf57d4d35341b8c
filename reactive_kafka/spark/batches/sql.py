"""Names and texts as Spark SQL reads them."""

from __future__ import annotations


def identifier(name: str) -> str:
    """*name* as the name of a column or a field."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """*text* as a value."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
