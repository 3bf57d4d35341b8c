"""``completion``: the scripts for the shells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import cli, environment


def completed(script: str, *words: str, folder: Path) -> list[str]:
    """What bash offers for the last word, after it has read the script."""
    program = folder / "reactive-kafka"
    # As the console script that an installation makes.
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom reactive_kafka.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ("reactive-kafka", *words))
    asked = (
        f"{script}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words)}\n"
        '_reactive_kafka_completion reactive-kafka\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    env = environment()
    env["PATH"] = f"{folder}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-c", asked], env=env, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = cli("completion", "bash", cwd=tmp_path).out
    assert completed(script, "ru", folder=tmp_path) == ["run"]
    assert completed(script, "run", "--work", folder=tmp_path) == ["--workers"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_this_program(shell: str, tmp_path: Path) -> None:
    ended = cli("completion", shell, cwd=tmp_path)
    assert ended.code == 0
    assert f"_REACTIVE_KAFKA_COMPLETE={shell}_complete" in ended.out
    if shutil.which(shell):
        subprocess.run([shell, "-n", "-c", ended.out], check=True, timeout=30)


def test_another_shell_is_refused(tmp_path: Path) -> None:
    ended = cli("completion", "tcsh", cwd=tmp_path)
    assert ended.code == 2
    assert "'bash', 'zsh', 'fish'" in ended.err
