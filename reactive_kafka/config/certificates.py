"""Finds files of certificates and keys that clients will not be able to read."""

from __future__ import annotations

from reactive_kafka.config.checks import Contradictions
from reactive_kafka.config.collect import BROKEN, View
from reactive_kafka.config.config_files import unreadable


def tls_files(view: View) -> Contradictions:
    """Find files of certificates and keys that a Kafka client cannot read.

    This is checked once. If a file disappears later, the client waits for it.
    """
    if view["security_protocol"] not in ("SSL", "SASL_SSL"):
        return
    for name in ("ssl_cafile", "ssl_capath", "ssl_certfile", "ssl_keyfile"):
        setting = view.setting(name)
        if setting is None or setting.value is BROKEN:
            continue
        why = unreadable(setting.value, is_folder=name == "ssl_capath")
        if why is None:
            continue
        if repr(setting.value) not in setting.where:
            # A long path is cut there, and the user needs all of it.
            why = f"{why}: {setting.value}"
        yield (name, "security_protocol"), why


def registry_files(view: View) -> Contradictions:
    """Find files that the client of a schema registry cannot read."""
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if view[name] is None:
            continue
        why = unreadable(view[name])
        if why is not None:
            yield (name,), why
