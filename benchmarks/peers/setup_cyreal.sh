#!/usr/bin/env bash
# Build the environment Cyreal runs in: .venv-cyreal at the repository root, or $LOADERX_CYREAL_VENV.
#
#   bash benchmarks/peers/setup_cyreal.sh
#
# Safe to run again: what is installed already is left as it is.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
venv="${LOADERX_CYREAL_VENV:-$root/.venv-cyreal}"
python="${PYTHON:-python3}"

fail() {
    echo "setup_cyreal: $*" >&2
    exit 1
}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    fail "could not create a virtual environment in $venv"
echo '*' >"$venv/.gitignore"

"$venv/bin/python" -m pip install --quiet cyreal==0.2.1 ||
    fail "could not install cyreal==0.2.1"

# The worker imports all it needs, and ends with its stdin.
(cd "$root" && "$venv/bin/python" -m benchmarks.peers.cyreal_worker </dev/null) ||
    fail "cyreal_worker cannot import what was installed"
echo "setup_cyreal: ready in $venv"
