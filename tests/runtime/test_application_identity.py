"""Which application it is, for those who look at its page."""

from __future__ import annotations

import os
import socket

import pytest

import tests.http as package_without_version
from reactive_kafka import App
from reactive_kafka.runtime.application_identity import identity_of


def test_the_name_is_that_of_the_module_that_has_the_app() -> None:
    assert App({}).identity().name == __name__


def test_the_configuration_may_give_another_name() -> None:
    app = App({"http": {"service_name": "billing"}})
    app.configure()
    assert app.identity().name == "billing"


def test_it_names_version_host_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = identity_of(package_without_version.__name__, None, 12.5)
    assert identity.version is None
    assert identity.library_version[0].isdecimal()
    assert (identity.host, identity.pid) == (socket.gethostname(), os.getpid())
    assert identity.uptime_s == 12.5
    assert identity_of("pytest.fixtures", None, None).version == pytest.__version__


def test_a_program_has_the_name_of_its_file_or_module() -> None:
    name = identity_of("__main__", None, None).name
    assert name not in ("", "__main__")
