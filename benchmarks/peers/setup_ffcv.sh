#!/usr/bin/env bash
# Build the environment FFCV runs in: .venv-ffcv at the repository root, or $LOADERX_FFCV_VENV.
#
#   bash benchmarks/peers/setup_ffcv.sh
#
# Safe to run again: what is installed already is left as it is.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
venv="${LOADERX_FFCV_VENV:-$root/.venv-ffcv}"
python="${PYTHON:-python3}"
system_packages=(build-essential pkg-config libturbojpeg0-dev libopencv-dev)

fail() {
    echo "setup_ffcv: $*" >&2
    exit 1
}

# FFCV is published as source only: its C++ half is compiled against these two libraries.
if ! command -v pkg-config >/dev/null || ! command -v c++ >/dev/null ||
    ! pkg-config --exists opencv4 libturbojpeg; then
    command -v apt-get >/dev/null ||
        fail "no apt-get here: install the equivalents of ${system_packages[*]} and run again"
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo"
    $sudo apt-get update || fail "apt-get update failed"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends \
        "${system_packages[@]}" || fail "apt-get could not install ${system_packages[*]}"
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    fail "could not create a virtual environment in $venv"
echo '*' >"$venv/.gitignore"

# torch is pinned: a later version brings gigabytes of CUDA for what is a CPU benchmark.
"$venv/bin/python" -m pip install --quiet torch==2.13.0 ||
    fail "could not install torch==2.13.0"
"$venv/bin/python" -m pip install --quiet numba numpy pandas terminaltables tqdm assertpy \
    fastargs pillow psutil opencv-python-headless setuptools wheel ||
    fail "could not install what FFCV needs"
# --no-deps: FFCV asks for opencv-python and torchvision, which this benchmark does not use.
"$venv/bin/python" -m pip install --quiet --no-deps ffcv==1.0.2 ||
    fail "could not build ffcv==1.0.2"

# The worker imports all of FFCV it needs, and ends with its stdin.
(cd "$root" && "$venv/bin/python" -m benchmarks.peers.ffcv_worker </dev/null) ||
    fail "FFCV is installed but cannot be imported"
echo "setup_ffcv: ready in $venv"
