"""Drops lines with secrets from pyspark's log, which has every call and its values at DEBUG."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reactive_kafka.spark.session.conf import SECRET

_hidden: set[str] = set(SECRET)


def hide(texts: Iterable[str]) -> None:
    """From now on, drop lines that contain one of *texts*: names of secrets, and the secrets.

    Names alone are not enough, because an answer of Java has a value without its name.
    """
    for text in texts:
        if text:
            _hidden.update((text, _as_sent_by_py4j(text)))


def _as_sent_by_py4j(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


class SecretFilter(logging.Filter):
    """Drops lines that contain a secret, or its name."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not any(hidden in text for hidden in _hidden)


for _name in ("py4j.clientserver", "py4j.java_gateway", "pyspark.sql.connect.logging"):
    logging.getLogger(_name).addFilter(SecretFilter())
