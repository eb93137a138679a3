#!/usr/bin/env bash
# Build the environment Grain and OpenCV run in: .venv-grain at the repository root, or $LOADERX_GRAIN_VENV.
#
#   bash benchmarks/peers/setup_grain.sh
#
# Safe to run again: what is installed already is left as it is.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
venv="${LOADERX_GRAIN_VENV:-$root/.venv-grain}"
python="${PYTHON:-python3}"

fail() {
    echo "setup_grain: $*" >&2
    exit 1
}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    fail "could not create a virtual environment in $venv"
echo '*' >"$venv/.gitignore"

"$venv/bin/python" -m pip install --quiet grain==0.2.18 jax array-record ||
    fail "could not install grain==0.2.18"
"$venv/bin/python" -m pip install --quiet opencv-python-headless ||
    fail "could not install opencv-python-headless"

# The workers import all they need, and end with their stdin.
for worker in grain_worker grain_records_worker opencv_worker; do
    (cd "$root" && "$venv/bin/python" -m "benchmarks.peers.$worker" </dev/null) ||
        fail "$worker cannot import what was installed"
done
echo "setup_grain: ready in $venv"
