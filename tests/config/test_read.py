from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.read import (
    MAX_SECRET_BYTES,
    json_lines,
    line_of,
    read_file,
    read_secret,
    toml_lines,
    yaml_lines,
)
from reactive_kafka.errors import ConfigError, MissingExtraError
from tests.config.loading import loaded, only_problem, problems, write

TOML = '[incoming.orders]\ngroup_id = "g"\nsession.timeout.ms = 6000\n[incoming.orders.retry]\nbackoff = "1s"\n'
YAML = "incoming:\n  orders:\n    group_id: g\n    session.timeout.ms: 6000\n    retry: {backoff: 1s}\n"
JSON = '{"incoming": {"orders": {"group_id": "g", "session.timeout.ms": 6000,\n"retry": {"backoff": "1s"}}}}'


def test_toml_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    files = {"a.toml": TOML, "b.yaml": YAML, "c.yml": YAML, "d.json": JSON, "e.JSON": "\ufeff" + JSON}
    results = [loaded(write(tmp_path, name, text)).incoming for name, text in files.items()]
    assert results[0]["orders"].retry.backoff_s == 1.0
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "[kafka]\nx = \n", "line 2"),
        ("a.toml", "x = " + "9" * 5000, "not TOML"),
        ("a.json", '{\n"a": 1,\n}', "line 3"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("a.json", '{"a": 1,\n"a": 2}', "line 2: a stands in line 1 too"),
        ("a.yaml", "a: 1\nb: [\n", "line 3"),
        ("a.yaml", "a: 1\na: 2\n", "line 2: a stands in line 1 too"),
        ("a.yaml", "a: !!python/object:os.system x\n", "not YAML"),
        ("a.yaml", "- a\n", "expected tables"),
        ("a.json", "3", "expected tables"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.ini", "", "expected one that ends in .toml, .yaml, .yml, .json"),
        ("application.properties", "a=b", "application.properties files are not supported yet"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = write(tmp_path, name, text)
    line = only_problem(path)
    assert line.startswith(str(path))
    assert said in line


def test_a_file_that_is_not_there_or_not_text_is_an_error(tmp_path: Path) -> None:
    assert "there is no such file" in only_problem(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    assert "not UTF-8 at byte 5" in only_problem(tmp_path / "bytes.toml")
    (tmp_path / "folder.toml").mkdir()
    assert "Is a directory" in only_problem(tmp_path / "folder.toml")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", 'password: "canary\n'),
        ("a.yaml", "password: @canary\n"),
        ("a.json", '{"password": "canary" x}'),
        ("a.toml", 'password = "canary'),
    ],
)
def test_a_file_that_cannot_be_read_never_shows_its_text(tmp_path: Path, name: str, text: str) -> None:
    assert "canary" not in only_problem(write(tmp_path, name, text))


def test_an_empty_file_is_an_empty_layer(tmp_path: Path) -> None:
    for name, text in {"a.toml": "", "a.yaml": "# nothing\n", "a.json": "{}"}.items():
        assert read_file(write(tmp_path, name, text)).leaves == ()


def test_yaml_without_its_extra_names_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)  # what an environment without PyYAML looks like
    with pytest.raises(MissingExtraError, match=r"pip install 'reactive-kafka\[yaml\]'"):
        read_file(write(tmp_path, "a.yaml", YAML))


def test_a_secret_is_the_files_text_without_its_line_end(tmp_path: Path) -> None:
    assert read_secret(str(write(tmp_path, "s", " pass word \r\n"))) == " pass word "


def test_a_secret_file_that_is_odd_is_an_error(tmp_path: Path) -> None:
    """Row J6 of the faults."""
    (tmp_path / "bytes").write_bytes(b"\xff")
    write(tmp_path, "empty", "\n")
    write(tmp_path, "large", "x" * (MAX_SECRET_BYTES + 1))
    said = {
        "bytes": "not UTF-8",
        "empty": "is empty",
        "large": "larger than",
        "none": "no such file",
        ".": "plain file",
    }
    for name, reason in said.items():
        with pytest.raises(ValueError, match=reason):
            read_secret(str(tmp_path / name))


def test_each_problem_of_a_file_names_its_line_in_every_format(tmp_path: Path) -> None:
    wrong = {
        "a.toml": TOML.replace('"1s"', '"soon"'),
        "a.yaml": YAML.replace("1s", "soon"),
        "a.json": JSON.replace("1s", "soon"),
    }
    lines = {name: problems(write(tmp_path, name, text))[0] for name, text in wrong.items()}
    assert ", line 5: [incoming.orders] retry.backoff = 'soon'" in lines["a.toml"]
    assert ", line 5: [incoming.orders] retry.backoff = 'soon'" in lines["a.yaml"]
    assert ", line 2: [incoming.orders] retry.backoff = 'soon'" in lines["a.json"]


def test_a_syntax_error_is_a_config_error_without_a_chain(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_file(write(tmp_path, "a.json", "{"))
    assert caught.value.__suppress_context__


def test_a_missing_file_is_named_from_the_root_with_the_ways_to_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = only_problem("conf/prod.toml")
    assert problem == (
        f"{tmp_path}/conf/prod.toml: there is no such file; --config and $REACTIVE_KAFKA_CONFIG name another"
    )


def test_a_relative_path_of_a_secret_says_where_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(f"there is no such file (a relative path starts at {tmp_path})")):
        read_secret("run/secrets/pw")
    with pytest.raises(ValueError, match=r"^there is no such file$"):
        read_secret("/nowhere/pw")


LINES_TOML = '''\
# [not.a.table]
[kafka] # comment = 1
bootstrap_servers = [
  "a = 1", # x = 2
  ["b"], { c = 1 },
  """[x]
  y = 3 """,
]
session.timeout.ms = 1
"client.id" = """one " quote""""

[incoming."my.orders"]
'group id' = 'a'
retry = { max_attempts = 3 }
  [ incoming . clicks ]
  topic = "t"'''


def test_every_key_and_table_of_a_toml_file_is_found() -> None:
    tomllib.loads(LINES_TOML)
    lines = toml_lines(LINES_TOML)
    assert {path: at[0] for path, at in lines.items()} == {
        ("kafka",): 2,
        ("kafka", "bootstrap_servers"): 3,
        ("kafka", "session", "timeout", "ms"): 9,
        ("kafka", "client.id"): 10,
        ("incoming", "my.orders"): 12,
        ("incoming", "my.orders", "group id"): 13,
        ("incoming", "my.orders", "retry"): 14,
        ("incoming", "clicks"): 15,
        ("incoming", "clicks", "topic"): 16,
    }
    assert line_of(lines, ("incoming", "my.orders", "retry", "max_attempts")) == 14
    assert line_of(lines, ("nothing",)) is None


def test_every_key_of_a_json_file_is_found_and_a_second_one_is_seen() -> None:
    text = '{\n "a": {"b": [1, {"no": 2}],\n "c\\n": {}},\n "d": "a: {",\n "d": 2\n}'
    assert json_lines(text) == {("a",): [2], ("a", "b"): [2], ("a", "c\n"): [3], ("d",): [4, 5]}


def test_every_key_of_a_yaml_file_is_found_and_a_second_one_is_seen() -> None:
    text = "a:\n  b: [1]\n  'c.d': {e: 1}\n# x\nf: |\n  g: 1\nf: 2\n"
    assert yaml_lines(yaml.compose(text, Loader=yaml.SafeLoader)) == {
        ("a",): [1],
        ("a", "b"): [2],
        ("a", "c.d"): [3],
        ("a", "c.d", "e"): [3],
        ("f",): [5, 7],
    }


def test_a_yaml_alias_to_what_holds_it_ends() -> None:
    lines = yaml_lines(yaml.compose("a: &a\n  b: *a\n", Loader=yaml.SafeLoader))
    assert lines[("a", "b")] == [2]


trees = st.recursive(
    st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def _paths(tree: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return set()
    return {(*path, key) for key in tree}.union(*(_paths(value, (*path, key)) for key, value in tree.items()))


@given(st.dictionaries(st.text(), trees, max_size=4))
def test_exactly_the_keys_of_any_json_are_found_each_once(tree: dict[str, Any]) -> None:
    lines = json_lines(json.dumps(tree, indent=1))
    assert lines.keys() == _paths(tree)
    assert all(len(at) == 1 for at in lines.values())
