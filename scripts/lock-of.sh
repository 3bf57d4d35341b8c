#!/usr/bin/env bash
# Prints what constraints.txt has for some packages, with their hashes: lock-of.sh pip setuptools
set -euo pipefail
cd "$(dirname "$0")/.."

for package in "$@"; do
    awk -v start="$package==" '
        index($0, start) == 1 { found = inside = 1 }
        inside { print; inside = /\\$/ }
        END { exit !found }
    ' constraints.txt || { echo "error: constraints.txt has no $package" >&2; exit 1; }
done
