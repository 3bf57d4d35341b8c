from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.config_files import (
    MAX_FILE_BYTES,
    MAX_SECRET_BYTES,
    read_file,
    read_secret,
)
from reactive_kafka.config.scan import MOST_DEPTH, json_lines, line_of, toml_lines
from reactive_kafka.config.yaml_text import parse_yaml, yaml_lines
from reactive_kafka.errors import ConfigError, MissingExtraError
from tests.config.loading import loaded, only_problem, problems, write

TOML = '[incoming.orders]\ngroup_id = "g"\nsession.timeout.ms = 6000\n[incoming.orders.retry]\nbackoff = "1s"\n'
YAML = "incoming:\n  orders:\n    group_id: g\n    session.timeout.ms: 6000\n    retry: {backoff: 1s}\n"
JSON = '{"incoming": {"orders": {"group_id": "g", "session.timeout.ms": 6000,\n"retry": {"backoff": "1s"}}}}'


def test_toml_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    files = {
        "a.toml": TOML,
        "b.yaml": YAML,
        "c.yml": YAML,
        "d.json": JSON,
        "e.JSON": "\ufeff" + JSON,
    }
    results = [loaded(write(tmp_path, name, text)).incoming for name, text in files.items()]
    assert results[0]["orders"].retry.backoff_s == 1.0
    assert all(result == results[0] for result in results)


IN_SINGLE_QUOTES = (
    r"in double quotes a backslash begins an escape: use single quotes, as in 'C:\Users'"
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "[kafka]\nx = \n", "a.toml, line 2: not TOML: Invalid value (column 5)"),
        ("a.toml", "[kafka]\nx = [\n", "a.toml: not TOML: "),
        ("a.toml", "\nx = " + "9" * 5000, "line 2: not TOML: Exceeds the limit"),
        *(
            ("a.toml", f'x = "C:{path}"', f"(column 10): {IN_SINGLE_QUOTES}")
            for path in (r"\Users", r"\xyz", r"\qyz")
        ),
        ("a.yaml", r'x: "C:\Users\x"', f"numbers, but found 's': {IN_SINGLE_QUOTES}"),
        ("a.yaml", r'x: "C:\qyz"', f": {IN_SINGLE_QUOTES}"),
        (
            "a.json",
            r'{"x": "C:\Users"}',
            r': a backslash begins an escape: write two of them, as in "C:\\Users"',
        ),
        ("a.json", '{\n"a": 1,\n}', "line 3"),
        ("a.json", '{\n"a": ' + "9" * 5000 + "}", "line 2: not JSON: Exceeds the limit"),
        ("a.json", '{"a": 1,\n"a": 2}', "line 2: a is in line 1, too"),
        ("a.yaml", "a: 1\nb: [\n", "line 3"),
        ("a.yaml", "a: 1\na: 2\n", "line 2: a is in line 1, too"),
        ("a.yaml", "a: !!python/object:os.system x\n", "not YAML"),
        ("a.yaml", "- a\n", "expected tables"),
        ("a.json", "3", "expected tables"),
        ("a.json", "\n" + "[" * 100_000, "line 2: nested too deeply: at most 64 levels are read"),
        ("a.json", '{"a": ' + "[" * 900 + "]" * 900 + "}", "line 1: nested too deeply"),
        ("a.toml", f"\n[{'a.' * 20_000}b]", "line 2: nested too deeply"),
        ("a.toml", f"\n{'a . ' * 20_000}b = 1", "line 2: nested too deeply"),
        ("a.toml", f"\nx = {{{'a.' * 20_000}b = 1}}", "line 2: nested too deeply"),
        ("a.toml", f"\nx = {'[' * 70}{']' * 70}", "line 2: nested too deeply"),
        (
            "a.toml",
            f"x = {('{' + 'a.' * 50 + 'b = ') * 3}1{'}' * 3}",
            "line 1: x.a.a...: nested too deeply",
        ),
        (
            "a.yaml",
            "\na: " + "[" * 100 + "]" * 100,
            "line 2: nested too deeply: at most 64 levels are read",
        ),
        ("a.yaml", "\na: " + "[" * 3000 + "]" * 3000, "line 2: nested too deeply"),
        (
            "a.yaml",
            "\na: 2020-13-99\n",
            "line 2: expected a value of the type timestamp; in quotes it is a string",
        ),
        ("a.yaml", "\na: !!timestamp abc", "line 2: expected a value of the type timestamp"),
        ("a.yaml", "\na: !!int abc\n", "line 2: expected a value of the type int"),
        ("a.yaml", "\na: !!float abc\n", "line 2: expected a value of the type float"),
        ("a.yaml", "\na: !!bool maybe\n", "line 2: expected a value of the type bool"),
        ("a.yaml", "\na: 0x_\n", "line 2: expected a value of the type int"),
        *(
            ("a.yaml", f"\na: !!{kind} {text}", f"line 2: expected a value of the type {kind}")
            for kind in ("int", "float", "bool", "timestamp")
            for text in ('""', '"-"', "_", "{=: x}", '{=: ""}', "{=: {=: x}}", "{=: 2020-13-99}")
        ),
        ("a.yaml", "\na: " + "9" * 4301, "line 2: expected a value of the type int"),
        ("a.yaml", "\n? 0x" + "f" * 5000 + "\n: 1", "line 2: expected a value of the type int"),
        ("a.yaml", '\na: "\\U00110000"', "line 2: not YAML: a number that is too large"),
        ("a.yaml", "\na: \x01", "line 2: not YAML: a character that it does not allow"),
        ("a.yaml", "x" * 5000 + "\n\x01", "line 2: not YAML: a character that it does not allow"),
        (
            "a.yaml",
            "x: 1\na: &a\n  b: *a\n",
            "line 2: an alias inside of the value that it stands for",
        ),
        ("a.yaml", "a: &a [*a]\n", "line 1: an alias inside of the value that it stands for"),
        ("a.yaml", "? !!set {a}\n: 1\n", "line 1: not YAML: found unhashable key"),
        ("a.toml", "#" * MAX_FILE_BYTES + "\n", "larger than 1048576 bytes"),
        ("a.ini", "", "expected one that ends in .toml, .yaml, .yml, .json, .properties"),
        ("a.properties", "\na=\\u12", "line 2: not a properties file: four hexadecimal digits"),
        (
            "a.properties",
            "a=b\n" * 20_001,
            "line 20001: not a properties file: more than 20000 entries",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
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
        ("a.yaml", "password: *canary\n"),
        ("a.yaml", "password: !canary\n"),
        ("a.yaml", "password: !!int canary\n"),
        ("a.yaml", 'password: "canary\n'),
        ("a.yaml", "password: @canary\n"),
        ("a.yaml", "password: !canary!x\n"),
        ("a.yaml", "password: !'%22canary x\n"),
        ("a.yaml", "password: !!int {=: canary}\n"),
        ("a.json", '{"password": "canary" x}'),
        ("a.toml", 'password = "canary'),
    ],
)
def test_a_file_that_cannot_be_read_never_shows_its_text(
    tmp_path: Path, name: str, text: str
) -> None:
    assert "canary" not in only_problem(write(tmp_path, name, text))


BOMBS = {
    "lists": ("[x, x, x, x, x, x, x, x, x]", "[*, *, *, *, *, *, *, *, *]"),
    "tables": ("{x: 1, y: 2}", "{a: *, b: *, c: *, d: *, e: *, f: *, g: *, h: *, i: *}"),
    "merges": ("{x: 1, y: 2}", "{<<: [*, *, *, *, *, *, *, *, *]}"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_yaml_aliases_of_aliases_are_refused_before_they_are_expanded(
    tmp_path: Path, kind: str
) -> None:
    first, further = BOMBS[kind]
    lines = [f"a0: &a0 {first}"]
    # 9 ** 60 values; made, a few levels of it would fill the memory.
    for level in range(1, 60):
        lines.append(f"a{level}: &a{level} {further.replace('*', f'*a{level - 1}')}")
    problem = only_problem(write(tmp_path, "a.yaml", "\n".join(lines)))
    assert problem.endswith("more than 20000 keys and values, with its aliases expanded")
    assert f"{tmp_path / 'a.yaml'}, line " in problem


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '"' + '\\"' * 400_000 + "\\"),
        ("a.json", '"\\"' * 300_000 + "\\"),
        ("a.toml", '"' + '\\"' * 400_000 + "\\"),
        ("a.toml", '"""' + '\\"""' * 200_000 + "\\"),
        ("a.toml", "'''" + "''a" * 300_000),
        ("a.toml", "'a" * 400_000),
        ("a.yaml", "a: [" + "a," * 500_000 + "]"),
        ("a.yaml", "a: {" * 50_000),
        ("a.yaml", "a: 1" + ":1" * 400_000),
        ("a.yaml", "a: 0x" + "f" * 900_000),
    ],
)
def test_a_large_file_that_is_nonsense_is_refused_soon(
    tmp_path: Path, name: str, text: str
) -> None:
    began = time.process_time()
    problems(write(tmp_path, name, text))
    # Most take a second; what is square takes hours.
    assert time.process_time() - began < 15


def chained_aliases(links: int, levels: int) -> str:
    """A YAML text in which each line nests the one before it *levels* deep."""
    lines = ["a0: &a0 1"]
    for link in range(1, links + 1):
        value = "{x: " * levels + f"*a{link - 1}" + "}" * levels
        lines.append(f"a{link}: &a{link} {value}")
    return "\n".join(lines) + "\n"


@given(links=st.integers(1, 25), levels=st.integers(1, 60))
def test_levels_of_yaml_count_through_aliases_as_if_they_were_written_out(
    links: int, levels: int
) -> None:
    # The top level and the value inside are levels, too.
    is_allowed = links * levels + 2 <= MOST_DEPTH
    try:
        data, _ = parse_yaml("a.yaml", chained_aliases(links, levels))
    except ConfigError as error:
        assert not is_allowed
        assert re.search(
            r"a\.yaml, line \d+: nested too deeply.*: at most 64 levels are read", str(error)
        )
    else:
        assert is_allowed
        value = data[f"a{links}"]
        for _ in range(links * levels):
            value = value["x"]
        assert value == 1


def test_a_chain_of_yaml_aliases_is_refused_before_its_lines_are_looked_up() -> None:
    # These are fewer than 20,000 keys and values, on more than a thousand levels.
    text = chained_aliases(links=17, levels=60)
    with pytest.raises(ConfigError, match="line 2: nested too deeply, with its aliases expanded"):
        parse_yaml("a.yaml", text)


def test_yaml_aliases_within_bounds_are_expanded(tmp_path: Path) -> None:
    text = "incoming:\n  a: &a {group_id: g}\n  b: *a\n  c: {<<: *a, topic: t}\n"
    channels = loaded(write(tmp_path, "a.yaml", text)).incoming
    assert {name: (one.group_id, one.topics) for name, one in channels.items()} == {
        "a": ("g", ("a",)),
        "b": ("g", ("b",)),
        "c": ("g", ("t",)),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", '[incoming."a\\nb\\u2028"]\n"x\\ny" = 1\n'),
        ("a.yaml", '"a\\nb\\u2028": {"x\\ny": 1}\n'),
        ("a.json", '{"a\\nb\\u2028": {"x\\ny\\ud800": 1}}'),
        ("a.json", '{"a\\nb\\u2028": 1, "a\\nb\\u2028": 2}'),
        ("a\n\u2028.json", "{"),
    ],
)
def test_a_problem_stays_one_line_whatever_the_names_hold(
    tmp_path: Path, name: str, text: str
) -> None:
    lines = problems(write(tmp_path, name, text))
    assert all(line.isprintable() for line in lines)
    assert any("\\n" in line and "\\u2028" in line for line in lines)


def test_an_integer_too_long_to_print_is_a_problem_like_any_other(tmp_path: Path) -> None:
    text = f"[http]\nport = 0x{'f' * 5000}\n[spark]\nmaster = [[0x{'f' * 5000}]]\n"
    first, second = problems(write(tmp_path, "a.toml", text))
    assert "line 2: [http] port = <int>: expected" in first
    assert "line 4: [spark] master = <list>: expected" in second


def test_an_empty_file_is_an_empty_layer(tmp_path: Path) -> None:
    for name, text in {"a.toml": "", "a.yaml": "# nothing\n", "a.json": "{}"}.items():
        assert read_file(write(tmp_path, name, text), {}).leaves == ()


def test_yaml_without_its_extra_names_the_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What an environment without PyYAML looks like.
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[yaml\]'"):
        read_file(write(tmp_path, "a.yaml", YAML), {})


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
        read_file(write(tmp_path, "a.json", "{"), {})
    assert caught.value.__suppress_context__


def test_a_missing_file_is_named_from_the_root_with_the_ways_to_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = only_problem("conf/prod.toml")
    assert problem == (
        f"{tmp_path}/conf/prod.toml: there is no such file; --config and $REACTIVE_KAFKA_CONFIG name another"
    )


def test_a_relative_path_of_a_secret_says_where_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=re.escape(f"there is no such file (a relative path starts at {tmp_path})")
    ):
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


trees = st.recursive(
    st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def _paths(tree: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return set()
    return {(*path, key) for key in tree}.union(
        *(_paths(value, (*path, key)) for key, value in tree.items())
    )


@given(st.dictionaries(st.text(), trees, max_size=4))
def test_exactly_the_keys_of_any_json_are_found_each_once(tree: dict[str, Any]) -> None:
    lines = json_lines(json.dumps(tree, indent=1))
    assert lines.keys() == _paths(tree)
    assert all(len(at) == 1 for at in lines.values())
