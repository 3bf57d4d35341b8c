"""What pyspark's clients print at DEBUG: every call, with its values. Lines with a secret in them
are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reactive_kafka.spark.session.conf import SECRET

_hidden: set[str] = set(SECRET)


def hide(texts: Iterable[str]) -> None:
    """Drop the lines with one of *texts* in them from now on: names of secrets, and the secrets
    themselves.

    An answer of Java has a value without its name, so that names are not enough.
    """
    _hidden.update(form for text in texts for form in (text, _as_py4j_sends_it(text)) if form)


def _as_py4j_sends_it(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


class SecretFilter(logging.Filter):
    """Drops lines with a secret, or its name, in them."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not any(hidden in text for hidden in _hidden)


for _name in ("py4j.clientserver", "py4j.java_gateway", "pyspark.sql.connect.logging"):
    logging.getLogger(_name).addFilter(SecretFilter())
