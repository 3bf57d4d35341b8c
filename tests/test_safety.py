"""What must not change by accident: nothing evaluates data, and the defaults are the safe ones."""

from __future__ import annotations

import ast
import inspect
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reactive_kafka
from reactive_kafka.broker import local_kafka
from reactive_kafka.broker.aiokafka.client_arguments import client_arguments
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.kafka_producer import PRODUCER_DEFAULTS
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.spark.session.conf import driver_environment, session_conf
from tests.app.helpers import committed, facts, in_virtual_time, make_app, running, send, until

PACKAGE = Path(reactive_kafka.__file__).parent
MODULES = {
    "pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "jsonpickle",
    "joblib",
    "code",
    "codeop",
}
BUILT_IN = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
OF_A_MODULE = {
    **{
        ("yaml", name): "yaml"
        for name in ("load", "load_all", "full_load", "unsafe_load", "Loader", "FullLoader")
    },
    **{("os", name): "a shell" for name in ("system", "popen")},
    ("pandas", "read_pickle"): "pickle",
    ("np", "load"): "pickle",
    ("numpy", "load"): "pickle",
}
IMPORTS_BY_NAME = {
    "formats/user_objects.py": "module:function of a configuration file",
    "cli/app_loading.py": "the application that a command line names",
    "cli/commands.py": "a command of ours",
    "planning/exception_names.py": "an exception class that the configuration names",
}
"""The exceptions: who imports a module by its name, and who chose that name. No record ever
does.
"""

PICKLES = {
    "spark/session/executor_texts.py": "what this process sends to its executors, beside functions that Spark pickles"
}
"""The exceptions: who unpickles what, and who made that. No record ever is."""


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (
                    f"import {one.name}" for one in names if one.name.partition(".")[0] in MODULES
                )
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in MODULES:
                    yield f"from {module} import"
                yield from (
                    f"from {module} import {one.name}"
                    for one in names
                    if (module, one.name) in OF_A_MODULE
                )
            case ast.Call(func=ast.Name(id=name)) if name in BUILT_IN:
                yield f"{name}()"
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                module,
                name,
            ) in OF_A_MODULE:
                yield f"{module}.{name}"
            case ast.Name(id="import_module") | ast.Attribute(attr="import_module"):
                yield "import_module"
            case ast.keyword(arg="shell" | "allow_pickle", value=ast.Constant(value=True)):
                yield f"{node.arg}=True"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle", "import pickle"),
        ("from marshal import loads", "from marshal import"),
        ("eval(text)", "eval()"),
        ("yaml.load(text)", "yaml.load"),
        ("from yaml import unsafe_load", "from yaml import unsafe_load"),
        ("os.system(text)", "os.system"),
        ("run(text, shell=True)", "shell=True"),
        ("importlib.import_module(name)", "import_module"),
    ],
)
def test_what_is_dangerous_is_noticed(code: str, found: str) -> None:
    assert list(dangers(ast.parse(code))) == [found]


def test_nothing_in_the_package_evaluates_or_unpickles_data() -> None:
    """Row S5 of the faults."""
    found = {
        (str(path.relative_to(PACKAGE)), danger)
        for path in PACKAGE.rglob("*.py")
        for danger in dangers(ast.parse(path.read_text()))
    }
    named = {(module, "import_module") for module in IMPORTS_BY_NAME}
    assert found == named | {(module, "import pickle") for module in PICKLES}


SAFE: dict[str, Any] = {
    "enable_auto_commit": False,
    "commit_strategy": "throttled",
    "commit_latest_unsafe": False,
    "auto_offset_reset": "latest",
    "failure_strategy": "fail",
    "dead_letter_queue": None,
    "delayed_retry": None,
    "on_poison": "fail",
    "ack": "post",
}
"""Of an incoming channel about which nothing was said."""


def test_the_defaults_are_the_safe_ones() -> None:
    """Row S15 of the faults. A default that changes here is a decision about every user's data, or
    doors.
    """
    settings = read_settings({"incoming": {"orders": {"group_id": "g"}}}, environ={}).checked()
    orders = settings.incoming["orders"]
    assert {name: getattr(orders, name) for name in SAFE} == SAFE
    # Never the embedded broker.
    assert settings.bootstrap_servers == "localhost:9092"
    assert settings.http.host == local_kafka.HOST == "127.0.0.1"


def test_the_client_neither_commits_nor_resets_by_itself() -> None:
    """Row S15 of the faults: where reading begins is decided by us, as the configuration says."""
    keywords = inspect.signature(ClientSettings.__init__).parameters.keys()
    assert not keywords & {"enable_auto_commit", "auto_offset_reset"}
    assert (PRODUCER_DEFAULTS["acks"], PRODUCER_DEFAULTS["enable_idempotence"]) == ("all", True)


def test_tls_asks_for_a_certificate_of_that_host() -> None:
    """Row S15 of the faults."""
    context = client_arguments({"security_protocol": "SSL"}, "orders")["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_spark_on_this_machine_stays_on_it() -> None:
    """Row S15 of the faults."""
    conf = session_conf(SparkSettings(), 1)
    environ = driver_environment(SparkSettings(), {}, java_home="/java", python="python", path="")
    assert {
        conf["spark.driver.host"],
        conf["spark.driver.bindAddress"],
        environ["SPARK_LOCAL_IP"],
    } == {"127.0.0.1"}
    assert conf["spark.ui.enabled"] == "false"


@in_virtual_time
async def test_without_a_dead_letter_topic_a_failure_stops_the_channel() -> None:
    """Row S15 of the faults."""
    app, seen = make_app(), list[bytes]()

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        seen.append(order)
        raise ValueError("no")

    async with running(app) as test:
        await send(test, b"1", b"2", b"3")
        await until(lambda: facts(test).state == "failed")
    assert seen == [b"1"]
    assert committed(test) in (None, 0)
    assert [topic for topic in test.broker.topics() if "dead" in topic] == []
