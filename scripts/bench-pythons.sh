#!/usr/bin/env bash
# Prints the Pythons to measure, each in an environment of its own (.venv-bench-*) with what benchmarks/requirements.txt
# has: those of $BENCH_PYTHONS, or else every build of 3.11 or newer that this machine has.
#
#   scripts/bench-pythons.sh PATH/OF/uv
#
# uv makes the environments: Debian's Python has no ensurepip, and so no venv of its own. The package is not installed in
# them: the benchmarks run in this folder.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly uv="$1" least="3, 11"
readonly lock=benchmarks/requirements.txt
found=0
declare -A seen

candidates() {
    if [[ -n "${BENCH_PYTHONS:-}" ]]; then
        tr ' ' '\n' <<< "$BENCH_PYTHONS"
        return
    fi
    command -v python3 || true
    compgen -c | grep -Ex 'python3\.[0-9]+' | sort -u || true
    compgen -G '/usr/bin/python3.[0-9]*' | grep -Ex '.*/python3\.[0-9]+' || true
    compgen -G '/usr/local/bin/python3.[0-9]*' | grep -Ex '.*/python3\.[0-9]+' || true
    compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/*/bin/python" || true
    compgen -G "$HOME/.local/share/uv/python/cpython-*/bin/python3" || true
}

# One build has one standard library, and with it one file of what it was configured with; a candidate has to run, not
# only to exist: pyenv leaves shims of versions that are switched off.
readonly ask="
import platform, sys, sysconfig
if sys.version_info < ($least) or sys.implementation.name != 'cpython':
    raise SystemExit(1)
print(platform.python_version() + '-' + sysconfig.get_path('stdlib').strip('/').replace('/', '-'))
"

while read -r candidate; do
    path="$(command -v "$candidate" 2> /dev/null)" || path=""
    if ! name="$("${path:-false}" -I -c "$ask" 2> /dev/null)"; then
        [[ -z "${BENCH_PYTHONS:-}" ]] || { echo "error: $candidate is no CPython 3.11 or newer that runs" >&2; exit 1; }
        continue
    fi
    [[ -z "${seen[$name]:-}" ]] || continue
    seen[$name]=1
    version="${name%%-*}"
    venv=".venv-bench-$version"
    [[ ! -e "$venv" || "$(cat "$venv/.made-of" 2> /dev/null || true)" == "$name" ]] || venv=".venv-bench-$name"
    if [[ ! "$venv/.ready" -nt "$lock" ]]; then
        echo "making $venv with $path" >&2
        "$uv" --quiet venv --clear --no-project --python "$path" "$venv"
        "$uv" --quiet pip install --python "$venv/bin/python" --require-hashes --no-deps --requirement "$lock"
        echo "$name" > "$venv/.made-of"
        touch "$venv/.ready"
    fi
    echo "$PWD/$venv/bin/python"
    found=1
done < <(candidates)

((found)) || { echo "error: no CPython 3.11 or newer found: make BENCH_PYTHONS=/path/to/python3.11 bench" >&2; exit 1; }
