"""The command line as a whole: its help, its exit codes, what it loads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from reactive_kafka.cli.commands import MODULES, commands
from tests.cli.inside import cli_in

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def every_command() -> list[str]:
    """All commands as they are written: ``run``, ``offsets show``."""
    context = click.Context(commands)
    found = []
    for name in MODULES:
        command = commands.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [f"{name} {inner}" for inner in command.commands]
        else:
            found.append(name)
    return found


@pytest.mark.parametrize("command", every_command())
def test_the_page_has_a_section_with_an_example_for_each_command(command: str) -> None:
    section = re.search(rf"^##+ {command}\n(.*?)(?=^##+ )", PAGE + "## ", re.MULTILINE | re.DOTALL)
    assert section is not None
    group = command.partition(" ")[0]
    # `groups` alone lists the groups, so the example of a group's first command may be shorter.
    assert re.search(rf"^\$ .*reactive-kafka ({command}|{group})\b", section[1], re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_every_command_has_a_help_with_examples(name: str, tmp_path: Path) -> None:
    ended = cli_in(tmp_path, name, "--help")
    assert ended.code == 0
    assert "Examples:" in ended.out
    assert f"reactive-kafka {name}" in ended.out.partition("Examples:")[2]


def test_the_list_of_commands_fits_80_columns_and_no_text_is_cut(tmp_path: Path) -> None:
    ended = cli_in(tmp_path, "--help", env={"COLUMNS": "80"})
    lines = ended.out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(MODULES)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
    assert max(map(len, lines)) <= 80


def test_options_name_their_environment_variable(tmp_path: Path) -> None:
    said = " ".join(cli_in(tmp_path, "run", "--help").out.split())
    for variable in ("PORT", "LOG_FORMAT", "EXIT_ON_FAILURE", "APP_DIR"):
        assert f"REACTIVE_KAFKA_{variable}" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ruun", "billing:app"), "No such command 'ruun'. Did you mean 'run'?"),
        (("chek",), "No such command 'chek'. Did you mean 'check'?"),
        (("consume",), "No such command 'consume'. There are " + ", ".join(MODULES)),
        (("--ruun",), "No such option '--ruun'"),
    ],
)
def test_an_unknown_command_is_wrong_usage(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    ended = cli_in(tmp_path, *words)
    assert ended.code == 2
    assert said in ended.err


def test_the_package_itself_is_a_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reactive_kafka", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("reactive-kafka ")


def test_importing_the_command_line_loads_no_command_and_no_extra() -> None:
    heavy = (
        "click",
        "aiokafka",
        "uvicorn",
        "starlette",
        "pyspark",
        "rich",
        "confluent_kafka",
        "prometheus_client",
    )
    code = f"import reactive_kafka.cli, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [("che\x07ck",), ("--no\x1b[2J",), ("lag", "\u202eorders"), ("lag", "--config", "\x1b.toml")],
)
def test_an_error_that_quotes_an_argument_gives_the_terminal_nothing_to_obey(
    arguments: tuple[str, ...],
) -> None:
    ended = CliRunner().invoke(commands, arguments)
    assert ended.exit_code == 2
    assert all(line.isprintable() for line in ended.stderr.splitlines())
