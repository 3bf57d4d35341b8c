"""What ``run`` and ``check`` say when the application cannot be loaded: short, with a place, and
exit code 2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import cli_in
from tests.cli.process import Ended

BILLING = """\
from reactive_kafka import App

app = App({"incoming": {"orders": {"group_id": "billing"}}})
other = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "billing.py").write_text(BILLING)
    return tmp_path


def refused(ended: Ended) -> str:
    """The text of an error that the user made."""
    assert ended.code == 2
    assert "Traceback" not in ended.err
    return ended.err


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_missing_module_names_the_folder_and_one_that_is_close(
    command: str, folder: Path
) -> None:
    said = refused(cli_in(folder, command, "biling:app"))
    assert f"there is no module 'biling' in {folder}; did you mean 'billing'?" in said


def test_a_missing_attribute_names_the_apps_that_are_there(folder: Path) -> None:
    said = refused(cli_in(folder, "check", "billing:ap"))
    assert "has no 'ap'; did you mean billing:app?" in said


@pytest.mark.parametrize("target", ["time:x", "_thread:lock", "_thread:lock.x", "sys:app"])
def test_a_module_without_a_file_is_named_all_the_same(target: str, folder: Path) -> None:
    name, attribute = target.split(":")
    assert f"{name} has no {attribute!r}; there is no App in {name}" in refused(
        cli_in(folder, "check", target)
    )


def test_an_attribute_that_raises_is_told_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text("def __getattr__(name):\n    raise OSError(f'no {name}')\n")
    said = refused(cli_in(tmp_path, "check", "lazy:app"))
    assert f"lazy:app cannot be looked up: OSError: no app ({tmp_path / 'lazy.py'}:2)" in said


def test_something_that_is_no_app_is_named_by_its_type(folder: Path) -> None:
    said = refused(cli_in(folder, "check", "billing:other"))
    assert "billing:other is not an App but of type 'int'; did you mean billing:app?" in said


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("billing.py:app", "name its module: billing:app"),
        ("billing.py", "name its module: billing:app"),
        ("shop/billing.py:service", "name its module: shop.billing:service"),
        ("billing", "expected module:attribute, as in billing:app"),
    ],
)
def test_a_target_that_is_written_wrongly_shows_the_right_form(
    target: str, text: str, folder: Path
) -> None:
    assert text in refused(cli_in(folder, "check", target))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "import json\nimport no_such_package\n",
            "ModuleNotFoundError: No module named 'no_such_package' ({file}:2)",
        ),
        (
            "from json import nothing_here\n",
            "ImportError: cannot import name 'nothing_here' from 'json'",
        ),
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero ({file}:2)"),
        ("def f(:\n    pass\n", "SyntaxError: invalid syntax ({file}:1)"),
        (
            "from reactive_kafka import App\napp = App({})\napp.on_stop\n",
            "AttributeError: 'App' object has no attribute 'on_stop': "
            "write @app.before_stop ({file}:3)",
        ),
        (
            "import reactive_kafka\nreactive_kafka.by('x')\n",
            "TypeError: by() takes a number of records, not 'x' ({file}:2)",
        ),
    ],
)
def test_what_fails_in_the_users_module_is_told_with_file_and_line(
    source: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(source)
    said = refused(cli_in(tmp_path, "run", "broken:app"))
    assert "broken cannot be imported: " + text.format(file=file) in said


def test_the_module_is_looked_for_in_app_dir(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert cli_in(elsewhere, "check", "billing:app", "--app-dir", str(folder)).code == 0
    env = {"REACTIVE_KAFKA_APP_DIR": str(folder)}
    assert cli_in(elsewhere, "check", "billing:app", env=env).code == 0
    refused(cli_in(elsewhere, "check", "billing:app"))


def test_a_wrong_decorator_is_told_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        BILLING + "\n\n@app.incoming('orders')\nasync def f(a: str, b: str) -> None: ...\n"
    )
    assert "a handler takes one parameter" in refused(cli_in(tmp_path, "check", "wrong:app"))
