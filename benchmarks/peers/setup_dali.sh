#!/usr/bin/env bash
# Build the environment DALI runs in: .venv-dali at the repository root, or $LOADERX_DALI_VENV.
#
#   bash benchmarks/peers/setup_dali.sh
#
# Safe to run again: what is installed already is left as it is. No GPU is needed.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
venv="${LOADERX_DALI_VENV:-$root/.venv-dali}"
python="${PYTHON:-python3}"

fail() {
    echo "setup_dali: $*" >&2
    exit 1
}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    fail "could not create a virtual environment in $venv"
echo '*' >"$venv/.gitignore"

"$venv/bin/python" -m pip install --quiet numpy nvidia-dali-cuda120==2.4.0 ||
    fail "could not install nvidia-dali-cuda120==2.4.0"

# The worker imports all of DALI it needs, and ends with its stdin.
(cd "$root" && "$venv/bin/python" -m benchmarks.peers.dali_worker </dev/null) ||
    fail "DALI is installed but cannot be imported"
echo "setup_dali: ready in $venv"
