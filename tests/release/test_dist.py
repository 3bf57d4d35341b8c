"""The files that are uploaded to a package index."""

from __future__ import annotations

import re
import tarfile
import tomllib
from email import message_from_string
from email.message import Message as Metadata
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.release.conftest import Dist
from tests.release.pythons import TOOLS, run

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE: str = PROJECT["urls"]["Source"]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.release


@pytest.fixture
def metadata(dist: Dist) -> Metadata:
    with ZipFile(dist.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(wheel.read(name).decode())


def test_the_index_would_take_both_files(dist: Dist) -> None:
    assert dist.said.count("PASSED") == 2
    assert dist.sdist.name == f"reactive_kafka-{PROJECT['version']}.tar.gz"
    assert dist.wheel.name == f"reactive_kafka-{PROJECT['version']}-py3-none-any.whl"


def test_links_of_the_readme_work_on_the_index(metadata: Metadata) -> None:
    text = FENCED.sub("", str(metadata.get_payload()))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    links += re.findall(r'(?:src|href|srcset)="([^"]+)"', text)
    assert links
    relative = [link for link in links if not link.startswith(("https://", "http://", "#"))]
    assert relative == []


def test_links_of_the_readme_lead_to_files_of_the_repository(metadata: Metadata) -> None:
    pages = rf"{re.escape(SOURCE)}/(?:blob|raw)/main/([^)\s\"#]+)"
    paths = re.findall(pages, str(metadata.get_payload()))
    assert "LICENSE" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    # A link that stays relative in the checkout becomes one of them, and no other link does.
    readme = FENCED.sub("", (ROOT / "README.md").read_text())
    relative = re.findall(r"\]\((?![a-z]+:|#)([^)\s]+)\)", readme)
    relative += re.findall(r'(?:src|href|srcset)="(?![a-z]+:|#)([^"\s]+)"', readme)
    assert len(paths) - readme.count(f"{SOURCE}/blob/main/") == len(relative)


def test_code_of_the_readme_is_the_same_on_the_index(metadata: Metadata) -> None:
    readme = (ROOT / "README.md").read_text()
    assert FENCED.findall(str(metadata.get_payload())) == FENCED.findall(readme)


def test_all_addresses_of_the_project_are_one_repository_and_its_pages() -> None:
    urls = dict(PROJECT["urls"])
    pages = urls.pop("Documentation")
    owner, name = SOURCE.removeprefix("https://github.com/").split("/")
    assert pages == f"https://{owner}.github.io/{name}/"
    assert [url for url in urls.values() if not url.startswith(SOURCE)] == []
    replaced = re.findall(r"https://[\w.]+/[\w-]+/[\w-]+", _build_settings())
    assert set(replaced) == {SOURCE}
    # The settings of the site, where this tree has them.
    files = [file for file in (ROOT / "mkdocs.yml", *ROOT.glob("docs_tools/*.py")) if file.exists()]
    text = "".join(file.read_text() for file in files)
    assert set(re.findall(r"https://github\.com/[\w-]+/[\w-]+", text)) <= {SOURCE}
    assert set(re.findall(r"https://[\w-]+\.github\.io/[\w-]+/", text)) <= {pages}


def _build_settings() -> str:
    """The part of pyproject.toml that makes links absolute."""
    text = (ROOT / "pyproject.toml").read_text()
    return text[text.index("[tool.hatch.metadata.hooks") : text.index("[tool.pytest")]


def test_all_is_standard_with_spark_and_connect(metadata: Metadata) -> None:
    extras = PROJECT["optional-dependencies"]
    standard = re.findall(r"[\w-]+(?=[,\]])", extras["standard"][0].partition("[")[2])
    assert set(standard) == set(extras) - {"standard", "all", "spark", "connect"}
    assert extras["all"] == ["reactive-kafka[standard,spark,connect]"]
    assert set(metadata.get_all("Provides-Extra") or ()) == set(extras)


def test_the_wheel_has_the_package_the_demo_and_nothing_else(dist: Dist) -> None:
    with ZipFile(dist.wheel) as wheel:
        names = wheel.namelist()
    version = PROJECT["version"]
    assert {name.split("/")[0] for name in names} == {
        "reactive_kafka",
        f"reactive_kafka-{version}.data",
        f"reactive_kafka-{version}.dist-info",
    }
    assert "reactive_kafka/py.typed" in names
    assert [name for name in names if name.endswith((".pyc", ".orig", ".rej"))] == []
    data = {
        name.partition(".data/")[2].rpartition("/")[0]
        for name in names
        if name.startswith(f"reactive_kafka-{version}.data/")
    }
    assert data == {"data/share/reactive-kafka/demo"}


def test_the_source_distribution_has_the_files_of_the_checkout(dist: Dist) -> None:
    with tarfile.open(dist.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    single = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "SECURITY.md")
    assert set(single) - names == set()
    folders = (
        "benchmarks",
        "deploy",
        "docs",
        "docs_tools",
        "examples",
        "reactive_kafka",
        "scripts",
        "tests",
    )
    kinds = (".py", ".md", ".toml", ".json", ".txt", ".sh", ".svg", ".yaml", ".proto", ".avsc")
    here = {
        str(file.relative_to(ROOT))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.suffix in kinds and "__pycache__" not in file.parts
    }
    assert here - names == set()


def test_tests_can_be_run_from_the_source_distribution(dist: Dist, tmp_path: Path) -> None:
    with tarfile.open(dist.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    # The quickest of those that read other folders: examples, documents and the package.
    some = (
        "tests/examples/demo",
        "tests/test_errors.py",
        "tests/test_records.py",
        "tests/test_supply_chain.py",
    )
    ended = run(
        *(TOOLS / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *some),
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
    )
    assert int(re.findall(r"(\d+) passed", ended)[0]) > 50
