#!/usr/bin/env bash
# Resolves pyproject.toml from nothing, in an environment of its own, and writes what came out to constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$(scripts/find-python.sh)" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --upgrade pip setuptools
"$work/venv/bin/python" -m pip install --quiet --editable '.[all]' --group dev
{
    sed -n '/^#/p' constraints.txt
    "$work/venv/bin/python" -m pip freeze --all --exclude-editable
} > "$work/constraints.txt"
mv "$work/constraints.txt" constraints.txt
git --no-pager diff --stat -- constraints.txt
