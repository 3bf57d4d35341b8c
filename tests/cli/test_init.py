"""``init``: the project that it makes, and the names that it is made for."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from reactive_kafka.cli.new_project.project_names import names_of
from tests.cli.inside import cli_in
from tests.cli.process import cli, environment


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_project_passes_its_own_tests_and_the_check(tmp_path: Path) -> None:
    made = cli("init", "my-shop", cwd=tmp_path)
    assert made.code == 0, made.err
    folder = tmp_path / "my-shop"
    files = {str(file.relative_to(tmp_path)) for file in folder.rglob("*") if file.is_file()}
    assert set(made.out.split()) == files
    assert "my-shop/my_shop.py" in files

    tested = pytest_in(folder)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "3 passed" in tested.stdout
    checked = cli("check", "my_shop:app", "--strict", cwd=folder)
    assert checked.code == 0, checked.out + checked.err
    left = [file for file in folder.rglob("*") if file.is_file() and "$" in file.stem]
    assert left == []


def test_the_tests_of_the_project_fail_when_its_handler_is_broken(tmp_path: Path) -> None:
    assert cli("init", "shop", cwd=tmp_path).code == 0
    module = tmp_path / "shop" / "shop.py"
    module.write_text(module.read_text().replace("order.cents + await", "order.cents - await"))
    assert pytest_in(tmp_path / "shop").returncode == 1


@pytest.mark.parametrize("existing", ["folder", "file", "."])
def test_what_exists_is_refused_and_left_alone(existing: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    ended = cli_in(tmp_path, "init", existing)
    assert ended.code == 2
    assert "exists already" in ended.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("folder", "module"),
    [
        ("billing", "billing"),
        ("my-shop", "my_shop"),
        ("My Shop 2.0", "my_shop_2_0"),
        ("2fast", "app_2fast"),
        ("json", "json_service"),
        ("class", "class_service"),
        ("match", "match_service"),
        ("tests", "tests_service"),
        ("reactive-kafka", "reactive_kafka_service"),
        ("click", "click_service"),
        ("pydantic-core", "pydantic_core_service"),
        ("Café", "cafe"),
    ],
)
def test_a_module_name_is_made_from_the_folder(folder: str, module: str) -> None:
    names = names_of(folder)
    assert names is not None
    assert names.module == module
    assert names.module.isidentifier()


def test_a_project_hides_no_package_that_it_and_its_tests_import() -> None:
    needed: set[str] = set()
    found = ["reactive-kafka", "pytest"]
    while found:
        name = canonicalize_name(found.pop())
        if name not in needed:
            needed.add(name)
            wanted = map(Requirement, requires(name) or ())
            found += [
                one.name
                for one in wanted
                if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if module.isidentifier() and needed.intersection(map(canonicalize_name, distributions))
    }
    assert {"pytest", "pydantic", "aiokafka"} <= modules
    made = {module: names_of(module) for module in modules}
    assert [module for module, names in made.items() if names and names.module == module] == []


@pytest.mark.parametrize("folder", ["---", "日本", " "])
def test_a_folder_without_letters_is_refused(folder: str, tmp_path: Path) -> None:
    ended = cli_in(tmp_path, "init", f"./{folder}")
    assert ended.code == 2
    assert "choose a folder" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_name_is_refused(tmp_path: Path) -> None:
    assert cli_in(tmp_path, "init", "").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = cli_in(tmp_path, "init", "file/project")
    assert ended.code == 1
    assert "cannot write" in ended.err
