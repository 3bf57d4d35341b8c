#!/usr/bin/env bash
# Resolves pyproject.toml for every system and each Python from 3.11 on. Writes the versions, and the hashes that the
# package index has for all files of these versions:
#   constraints.txt                  everything for development
#   scripts/demo.txt                 the part of it that `make demo` installs where there is no .venv
#   deploy/requirements.txt          the part of it that the container image installs
#   scripts/tools.txt                the tools of `make constraints`, `audit`, `dist` and `sbom`
#   scripts/docs.txt                 the site of the documentation
#   benchmarks/requirements.txt      the Pythons that are measured: our needs there, and our peers
#   benchmarks/peers/requirements/   the peers that need an environment each
# Without --upgrade a version stays as long as pyproject.toml allows it.
#
#   scripts/update-constraints.sh PATH/OF/uv [--upgrade] [--upgrade-package NAME]
set -euo pipefail
cd "$(dirname "$0")/.."

uv="$1"
shift
readonly locked=(--universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet)

write() { # file, arguments of uv...
    local lock="$1" work
    shift
    work="$(mktemp)"
    cp "$lock" "$work" # what it has now is what uv prefers
    "$uv" pip compile "${locked[@]}" --output-file "$work" "$@" > /dev/null
    { sed -n '/^#/p;/^[^#]/q' "$lock"; cat "$work"; } > "$lock.new"
    rm "$work"
    mv "$lock.new" "$lock"
}

write constraints.txt pyproject.toml --all-extras --group dev --group build "$@"
write scripts/demo.txt pyproject.toml --extra embedded --extra rich --constraints constraints.txt
write deploy/requirements.txt pyproject.toml --extra standard --constraints constraints.txt
write scripts/tools.txt --group pyproject.toml:tools "$@"
# Only the script of axe is used of its package: our tests have a browser.
write scripts/docs.txt --group pyproject.toml:docs --no-emit-package playwright --no-emit-package greenlet \
    --no-emit-package pyee "$@"
write benchmarks/requirements.txt pyproject.toml --extra fast --extra avro --group bench "$@"
for peer in arroyo faststream faust quix; do
    write "benchmarks/peers/requirements/$peer.txt" --group "pyproject.toml:peers-$peer" "$@"
done
git --no-pager diff --stat -- constraints.txt scripts deploy/requirements.txt benchmarks
