"""The files of certificates and keys that clients will read: those that cannot be read are
contradictions.
"""

from __future__ import annotations

from reactive_kafka.config.checks import Contradictions
from reactive_kafka.config.collect import BROKEN, View
from reactive_kafka.config.config_files import unreadable


def tls_files(view: View) -> Contradictions:
    """The files of certificates and keys that a client will not find. One that goes later is waited
    for.
    """
    if view["security_protocol"] not in ("SSL", "SASL_SSL"):
        return
    for name in ("ssl_cafile", "ssl_capath", "ssl_certfile", "ssl_keyfile"):
        setting = view.setting(name)
        if setting is None or setting.value is BROKEN:
            continue
        if why := unreadable(setting.value, is_folder=name == "ssl_capath"):
            # A long value is cut there, and whoever looks needs it all.
            is_whole = repr(setting.value) in setting.where
            yield (name, "security_protocol"), why if is_whole else f"{why}: {setting.value}"


def registry_files(view: View) -> Contradictions:
    """The same for the client of a schema registry."""
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if view[name] is not None and (why := unreadable(view[name])):
            yield (name,), why
