"""What docs/versions.md, the changelog and CI say about versions is what the project declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from reactive_kafka.broker.jars import KAFKA_VERSION
from reactive_kafka.version import VERSION
from tests.harness.other_kafkas import OTHER_VERSIONS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = (ROOT / "docs/versions.md").read_text()
PYTHONS = [
    one.rpartition(" ")[2]
    for one in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
]


def row(part: str) -> str:
    (found,) = re.findall(rf"^\| {part} \|.*$", PAGE, re.MULTILINE)
    return str(found)


def test_the_page_names_the_pythons_that_are_declared() -> None:
    assert f"| {PYTHONS[0]} to {PYTHONS[-1]} |" in row("Python")
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_ci_runs_on_each_of_them() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    (oldest,) = [
        step["with"]["python-version"]
        for step in jobs["check"]["steps"]
        if "python-version" in step.get("with", {})
    ]
    assert [oldest, *jobs["fast"]["strategy"]["matrix"]["python"]] == PYTHONS


def test_the_page_names_the_versions_of_kafka_that_tests_start() -> None:
    tested = re.findall(r"\d+\.\d+\.\d+", row("Apache Kafka"))
    assert tested == [KAFKA_VERSION, *OTHER_VERSIONS]


def test_other_pages_name_no_version_of_kafka_that_tests_do_not_run() -> None:
    named = {
        version
        for page in (ROOT / "docs").rglob("*.md")
        for version in re.findall(
            r"(?:Apache Kafka|apache/kafka:) ?(\d+\.\d+\.\d+)", page.read_text()
        )
    }
    assert named <= {KAFKA_VERSION, *OTHER_VERSIONS}


def test_the_answer_about_brokers_is_what_is_supported() -> None:
    (oldest,) = re.findall(r"\| Apache Kafka \| (\S+) and newer \|", PAGE)
    assert f"Apache Kafka {oldest} and newer" in (ROOT / "docs/faq.md").read_text()


def test_the_page_names_the_versions_that_are_allowed() -> None:
    (aiokafka,) = [one for one in PROJECT["dependencies"] if one.startswith("aiokafka")]
    assert aiokafka == "aiokafka>=0.14,<0.16"
    assert "| 0.14 and 0.15 |" in row("aiokafka")
    assert "pyspark>=4.0,<4.2" in PROJECT["optional-dependencies"]["spark"]
    assert "| 4.0 and 4.1 |" in row("PySpark")


def test_the_package_says_the_version_with_which_it_is_built() -> None:
    assert PROJECT["version"] == VERSION


def test_the_changelog_begins_with_the_version_that_is_next_and_is_short() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0] == PROJECT["version"]
    first = re.split(r"^## ", changelog, flags=re.MULTILINE)[1]
    assert len(first.split()) < 800


def test_the_install_page_names_every_extra_and_the_file_that_is_built() -> None:
    page = (ROOT / "docs/install.md").read_text()
    rows = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.+?) \|", page, re.M))))
    assert rows == set(PROJECT["optional-dependencies"])
    assert f"reactive_kafka-{PROJECT['version']}-py3-none-any.whl" in page
