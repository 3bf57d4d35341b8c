"""Whose logging a service that is run has: the application's, what the options say, or else
ours.
"""

from __future__ import annotations

import json
import logging
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from reactive_kafka.cli.run_logging import LogOptions
from reactive_kafka.errors import ConfigError
from tests.cli.process import COMMAND, Ended, cli, running

APP = """\
import logging
import sys

from reactive_kafka import App

{setup}

app = App({{"kafka": {{"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}}, "incoming": {{"orders": {{}}}},
           "http": {{"enabled": False}}}})


@app.incoming("orders")
async def handle(order: bytes) -> None: ...


@app.on_start
async def told() -> None:
    logging.getLogger("billing").debug("a detail")
    logging.getLogger("billing").info("hello")
    logging.getLogger("aiokafka.note").info("a note")
    print("up", flush=True)
"""
OWN = (
    'logging.basicConfig(format="OWN %(name)s %(message)s", level=logging.INFO, stream=sys.stderr)'
)
ONE_LOGGER = """\
handler = logging.StreamHandler(sys.stderr)
handler.setFormatter(logging.Formatter("OWN %(name)s %(message)s"))
logging.getLogger("reactive_kafka").addHandler(handler)
logging.getLogger("reactive_kafka").setLevel(logging.INFO)
"""

TOML = """\
[formatters.mine]
format = "MINE %(levelname)s %(name)s %(message)s"

[handlers.err]
class = "logging.StreamHandler"
formatter = "mine"

[root]
level = "INFO"
handlers = ["err"]
"""
YAML = """\
version: 1
formatters: {mine: {format: "MINE %(levelname)s %(name)s %(message)s"}}
handlers: {err: {class: logging.StreamHandler, formatter: mine}}
root: {level: INFO, handlers: [err]}
"""
JSON = json.dumps(
    {
        "formatters": {"mine": {"format": "MINE %(levelname)s %(name)s %(message)s"}},
        "handlers": {"err": {"class": "logging.StreamHandler", "formatter": "mine"}},
        "root": {"level": "INFO", "handlers": ["err"]},
    }
)


def logs_of(
    folder: Path, *options: str, setup: str = "", env: dict[str, str] | None = None
) -> list[str]:
    """What a service has on stderr from its start to its end."""
    (folder / "service.py").write_text(APP.format(setup=setup))
    with running(*COMMAND, "run", "service:app", *options, cwd=folder, env=env) as run:
        run.wait_for(lambda: "up" in run.out, "its start")
        run.process.send_signal(signal.SIGTERM)
        ended: Ended = run.end()
    assert ended.code == 0, run.said
    return ended.err.splitlines()


def lines_with(lines: list[str], text: str) -> list[str]:
    return [line for line in lines if text in line]


def test_where_nobody_has_configured_logging_lines_are_text_from_info_on(tmp_path: Path) -> None:
    lines = logs_of(tmp_path)
    (hello,) = lines_with(lines, "hello")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00 INFO    billing: hello", hello)
    assert lines_with(lines, "INFO    reactive_kafka: started: ")
    assert not lines_with(lines, "a detail")


@pytest.mark.parametrize("setup", [OWN, ONE_LOGGER], ids=["root", "our logger"])
def test_what_the_application_has_configured_is_kept(setup: str, tmp_path: Path) -> None:
    lines = logs_of(tmp_path, setup=setup)
    (started,) = lines_with(lines, "started: ")
    assert started.startswith("OWN reactive_kafka started: ")
    assert not [line for line in lines if re.match(r"\d{4}-", line)]


def test_a_library_has_the_level_that_the_application_has_set(tmp_path: Path) -> None:
    """``run`` sets WARNING for aiokafka only where nobody has set anything."""
    assert not lines_with(logs_of(tmp_path), "a note")
    lines = logs_of(tmp_path, setup='logging.getLogger("aiokafka").setLevel(logging.INFO)')
    assert lines_with(lines, "INFO    aiokafka.note: a note")


def test_a_format_that_is_given_wins_over_the_application_by_flag_and_by_variable(
    tmp_path: Path,
) -> None:
    for options, env in (("--log-format", "json"), {}), ((), {"REACTIVE_KAFKA_LOG_FORMAT": "json"}):
        lines = logs_of(tmp_path, *options, setup=OWN, env=env)
        assert not lines_with(lines, "OWN")
        assert [json.loads(line)["message"] for line in lines if '"billing"' in line] == ["hello"]


def test_a_level_says_what_is_shown_and_leaves_the_applications_format_as_it_is(
    tmp_path: Path,
) -> None:
    lines = logs_of(tmp_path, "--log-level", "DEBUG")
    assert len(lines_with(lines, "DEBUG   billing: a detail")) == 1
    lines = logs_of(tmp_path, "--log-level", "debug", setup=OWN)
    assert lines_with(lines, "a detail") == ["OWN billing a detail"]
    lines = logs_of(tmp_path, setup=OWN, env={"REACTIVE_KAFKA_LOG_LEVEL": "error"})
    assert not lines_with(lines, "hello") + lines_with(lines, "started: ")


@pytest.mark.parametrize(
    ("name", "text"), [("log.toml", TOML), ("log.yaml", YAML), ("log.json", JSON)]
)
def test_a_file_configures_logging_in_toml_yaml_or_json(
    name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    lines = logs_of(tmp_path, "--log-config", name, setup='early = logging.getLogger("billing")')
    assert lines_with(lines, "hello") == ["MINE INFO billing hello"], (
        "a logger made before is not silenced"
    )
    assert lines_with(lines, "started: ")[0].startswith("MINE INFO reactive_kafka started: ")


def test_a_file_and_a_level_go_together_and_the_variable_names_it_too(tmp_path: Path) -> None:
    (tmp_path / "log.toml").write_text(TOML)
    lines = logs_of(tmp_path, "--log-level", "debug", env={"REACTIVE_KAFKA_LOG_CONFIG": "log.toml"})
    assert lines_with(lines, "a detail") == ["MINE DEBUG billing a detail"]


def test_a_file_without_a_place_for_our_lines_gets_none_of_our_handlers(tmp_path: Path) -> None:
    (tmp_path / "log.toml").write_text(TOML.replace("[root]", "[loggers.billing]"))
    lines = logs_of(tmp_path, "--log-config", "log.toml")
    assert lines_with(lines, "hello") == ["MINE INFO billing hello"]
    assert not lines_with(lines, "started: ")


@pytest.fixture
def untouched() -> Iterator[None]:
    """Logging as it is, put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("reactive_kafka")
    before = root.handlers[:], root.level, ours.handlers[:]
    yield
    root.handlers[:], ours.handlers[:] = before[0], before[2]
    root.setLevel(before[1])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "log.ini",
            "",
            ": unknown kind of file; expected one that ends in .toml, .yaml, .yml, .json",
        ),
        ("log.toml", "[root", ": not TOML: "),
        ("log.json", "[1]", ": expected tables such as [handlers.NAME] at the top, not list"),
        ("log.json", '{\n"root": {},\n"root": {}}', ", line 3: root is in line 2, too"),
        (
            "log.toml",
            "version = 1\n[handler.err]\n",
            ", line 2: [handler]: unknown; did you mean 'handlers'?",
        ),
        (
            "log.toml",
            "version = 2",
            ": logging cannot be configured with it: ValueError: Unsupported version: 2",
        ),
        (
            "log.toml",
            TOML.replace("logging.StreamHandler", "loging.StreamHandler"),
            ", line 4: [handlers.err]: Cannot resolve 'loging.StreamHandler': No module named 'loging': "
            "ModuleNotFoundError: No module named 'loging'",
        ),
        (
            "log.toml",
            TOML.replace('"INFO"', '"LOUD"'),
            ", line 8: [root]: ValueError: Unknown level: 'LOUD'",
        ),
        (
            "log.yaml",
            YAML.replace("[err]", "[errs]"),
            ", line 4: [root]: Unable to add handler 'errs': KeyError: 'errs'",
        ),
    ],
)
def test_a_bad_file_is_named_with_the_place_in_it(
    name: str, text: str, told: str, tmp_path: Path, untouched: None
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        LogOptions(None, None, file).apply()
    assert f"- {file}{told}" in str(caught.value)


def test_a_bad_file_ends_the_command_with_2_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(APP.format(setup=""))
    (tmp_path / "log.toml").write_text(
        "[handlers.file]\nclass = 'logging.FileHandler'\nfilename = 'no/such/folder'\n"
    )
    ended = cli("run", "service:app", "--log-config", "log.toml", cwd=tmp_path)
    assert ended.code == 2
    assert "log.toml, line 1: [handlers.file]: FileNotFoundError: " in ended.err
    assert "Traceback" not in ended.err


def test_a_format_and_a_file_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--log-format cannot be combined with --log-config"):
        LogOptions("json", None, tmp_path / "log.toml")


def test_levels_have_their_names_and_no_others(tmp_path: Path) -> None:
    ended = cli("run", "service:app", "--log-level", "loud", cwd=tmp_path)
    assert ended.code == 2
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error', 'critical'" in ended.err
