from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.user_objects import load_function
from tests.formats.types import upper

HERE = "tests.formats.types"


def test_a_function_is_found_by_module_and_name() -> None:
    assert load_function(f"{HERE}:upper") is upper


def test_a_method_of_a_class_is_found() -> None:
    assert load_function(f"{HERE}:OrderModel.model_validate_json")(b'{"id": 1}').id == 1


@pytest.mark.parametrize("command", [["shop.py"], ["-m", "shop"]])
def test_a_class_of_the_running_program_is_found_and_not_made_again(
    command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        "from reactive_kafka.formats.user_objects import load_object\n"
        "class Order: ...\n"
        "assert load_object('shop:Order') is Order\n"
        "print('once')\n"
    )
    ended = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.returncode) == ("once\n", 0), ended.stderr


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere.at_all:function", "there is no module 'nowhere'"),
        (f"{HERE}.deeper:function", f"there is no module '{HERE}.deeper'"),
        (f"{HERE}:missing", f"{HERE} has no 'missing'"),
        (f"{HERE}:OrderModel.missing", f"{HERE} has no 'OrderModel.missing'"),
        (f"{HERE}:NOT_CALLABLE", "it is not callable: its type is int"),
        (f"{HERE}:asynchronous", "is async"),
        (f"{HERE}:yielding", "it yields, but it is only called: write a plain function"),
        (f"{HERE}:yielding_asynchronous", "it yields, but it is only called"),
        (f"{HERE}:YIELDING", "it yields, but it is only called"),
        (f"{HERE}:", "not of the form package.module:function"),
        (":function", "not of the form package.module:function"),
        ("a b:function", "not of the form package.module:function"),
        (f"{HERE}:upper:upper", "not of the form package.module:function"),
    ],
)
def test_what_cannot_be_used_is_named(path: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        load_function(path)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import not_installed_anywhere",
            "importing MODULE failed: No module named 'not_installed_anywhere'",
        ),
        ("raise RuntimeError('no licence')", "importing MODULE failed: RuntimeError: no licence"),
        ("def broken(:", "importing MODULE failed: SyntaxError"),
    ],
)
def test_a_module_that_fails_while_it_is_imported_is_named_with_its_error(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"made_for_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FormatError, match=said.replace("MODULE", module)) as raised:
        load_function(f"{module}:function")
    assert raised.value.__cause__ is not None
