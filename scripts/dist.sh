#!/usr/bin/env bash
# Builds the source distribution, and from it the wheel, and checks what a package index would refuse or show wrongly.
#
#   scripts/dist.sh FOLDER/OF/TOOLS OUT
#
# The folder has uv, twine and a python with the build backend: .venv/bin or .venv-tools/bin. The build downloads nothing.
set -euo pipefail
tools="$(realpath --no-symlinks "$1")"
out="$(realpath --canonicalize-missing "$2")"
cd "$(dirname "$0")/.."

rm -rf "$out"
"$tools/uv" --quiet --offline build --no-build-isolation --python "$tools/python" --out-dir "$out"
"$tools/twine" check --strict "$out"/*.tar.gz "$out"/*.whl
ls "$out"
