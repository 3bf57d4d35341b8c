#!/usr/bin/env bash
# Prints a Python that can make our environment: 3.11 or newer, with venv. Looks at $PYTHON first, if it is set.
#
# A candidate has to run, not only to exist: pyenv leaves shims of versions that are switched off.
set -euo pipefail

readonly least="3, 11"
without_venv=""

for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
    path="$(command -v "$candidate" 2>/dev/null)" || continue
    "$path" -c "import sys; sys.exit(sys.version_info < ($least))" 2>/dev/null || continue
    if "$path" -c "import venv, ensurepip" 2>/dev/null; then
        echo "$path"
        exit 0
    fi
    without_venv="${without_venv:-$path}"
done

if [[ -n "$without_venv" ]]; then
    echo "error: $without_venv is new enough, but cannot make virtual environments: apt-get install python3-venv" >&2
else
    echo "error: no Python 3.11 or newer found: apt-get install python3 python3-venv, or make PYTHON=/path/to/python3.11 ..." >&2
fi
exit 1
