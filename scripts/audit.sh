#!/usr/bin/env bash
# Asks for known advisories against every version of the lock. Exit codes: 0 none is known, 1 there are some,
# 2 nobody knows: an audit that could not be made must not look like one that found nothing.
#
#   scripts/audit.sh PATH/OF/pip-audit [ARGUMENTS OF pip-audit: --vulnerability-service osv]
set -euo pipefail
cd "$(dirname "$0")/.."

audit="$1"
shift
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

if "$audit" --requirement constraints.txt --require-hashes --no-deps --disable-pip --strict --progress-spinner off \
    --timeout 15 --format json --output "$work/report.json" "$@" 2> "$work/said"; then
    echo "audit: no advisory is known against the $(grep -c '^[A-Za-z]' constraints.txt) packages of constraints.txt"
elif [[ -s "$work/report.json" ]]; then
    cat "$work/report.json" "$work/said"
    echo "audit: there are advisories against packages of constraints.txt" >&2
    exit 1
else
    tail -n 1 "$work/said" >&2
    echo "audit: NOT DONE: no advisories can be had from here; nothing is known about the lock" >&2
    exit 2
fi
