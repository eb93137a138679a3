#!/usr/bin/env bash
# Build the environment AlbumentationsX runs in: .venv-albumentations at the repository root, or
# $LOADERX_ALBUMENTATIONS_VENV.
#
#   bash benchmarks/peers/setup_albumentations.sh
#
# Safe to run again: what is installed already is left as it is.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
venv="${LOADERX_ALBUMENTATIONS_VENV:-$root/.venv-albumentations}"
python="${PYTHON:-python3}"

fail() {
    echo "setup_albumentations: $*" >&2
    exit 1
}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    fail "could not create a virtual environment in $venv"
echo '*' >"$venv/.gitignore"

# It does not import without torch. torch is pinned: a later version brings gigabytes of CUDA.
"$venv/bin/python" -m pip install --quiet torch==2.13.0 ||
    fail "could not install torch==2.13.0"
"$venv/bin/python" -m pip install --quiet albumentationsx==2.5.1 opencv-python-headless==5.0.0.93 ||
    fail "could not install albumentationsx==2.5.1"

# The workers import all they need, and end with their stdin.
for worker in albumentations_worker by_hand_worker; do
    (cd "$root" && "$venv/bin/python" -m "benchmarks.peers.$worker" </dev/null) ||
        fail "$worker cannot import what was installed"
done
echo "setup_albumentations: ready in $venv"
