"""Environments of the peers, installed once in `.peers`: `python -m benchmarks.environments [peer ...]`."""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.harness import ROOT

PEERS = Path(os.environ.get("LOADERX_PEERS", ROOT / ".peers"))

# The training loop needs these with any loader.
TRAINING = ("jax", "flax", "optax")
# People write augmentations with these where a loader has none.
PIXELS = ("opencv-python-headless==5.0.0.93",)
# Pinned: a later version brings gigabytes of CUDA for a CPU benchmark.
TORCH = ("torch==2.13.0",)
# FFCV is published as source only: its C++ half is compiled against the last two of these.
FFCV_SYSTEM = ("build-essential", "pkg-config", "libturbojpeg0-dev", "libopencv-dev")
FFCV_NEEDS = "numba numpy pandas terminaltables tqdm assertpy fastargs pillow psutil setuptools"


@dataclass(frozen=True)
class Installation:
    """Installation of a peer: its packages, and the environment that it shares with other peers."""

    environment: str
    # Each is one call of pip.
    packages: tuple[tuple[str, ...], ...]
    worker: str
    system: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)


INSTALLATIONS = {
    "grain": Installation(
        "jax", (TRAINING, PIXELS, ("grain==0.2.18", "array-record")), "grain_worker"
    ),
    "cyreal": Installation("jax", (TRAINING, ("cyreal==0.2.1", "array-record")), "cyreal_worker"),
    "loadax": Installation("jax", (TRAINING, PIXELS, ("loadax==0.2.1",)), "loadax_worker"),
    # A later beartype refuses its annotations, and it does not work without torch or beartype.
    "jax-dataloader": Installation(
        "jax", (TRAINING, ("jax-dataloader==0.1.4", "beartype<0.23")), "jax_dataloader_worker"
    ),
    "torch": Installation("torch", (TORCH, TRAINING, PIXELS, ("array-record",)), "torch_worker"),
    "spdl": Installation(
        "torch",
        (TORCH, TRAINING, PIXELS, ("spdl-core==0.8.0", "spdl-io==0.8.0", "array-record")),
        "spdl_worker",
    ),
    # Its decoder is FFmpeg's; the rest of it works without.
    "spdl-decoder": Installation(
        "torch",
        (TORCH, TRAINING, PIXELS, ("spdl-core==0.8.0", "spdl-io==0.8.0", "array-record")),
        "spdl_worker",
        system=("ffmpeg",),
    ),
    "turboloader": Installation(
        "turboloader", (PIXELS, ("turboloader==2.39.0",)), "turboloader_worker"
    ),
    "ffcv": Installation(
        "ffcv",
        # --no-deps: FFCV asks for opencv-python and torchvision, which these benchmarks do not use.
        (TORCH, TRAINING, PIXELS, (*FFCV_NEEDS.split(), "wheel"), ("--no-deps", "ffcv==1.0.2")),
        "ffcv_worker",
        system=FFCV_SYSTEM,
    ),
    "dali": Installation("dali", (TRAINING, ("nvidia-dali-cuda120==2.4.0",)), "dali_worker"),
    # Its import name is ours, so it can share no environment with this project.
    "upstream": Installation(
        "upstream", (("loaderx==2.8.19",), TRAINING), "upstream_worker", python=(3, 12)
    ),
    # It does not import without torch, which the peers written by hand use too.
    "albumentations": Installation(
        "albumentations",
        (TORCH, PIXELS, ("albumentationsx==2.5.1", "pillow==13.0.0")),
        "albumentations_worker",
    ),
    "audio": Installation(
        "audio",
        (("scipy==1.17.1", "librosa==0.11.0", "pyloudnorm==0.2.0", "pedalboard==0.9.26"),),
        "pedalboard_worker",
    ),
}


class UnavailableError(RuntimeError):
    """Failure to install a peer here, with the reason."""


def interpreter(peer: str) -> Path:
    """Return the Python of a peer's environment, which is installed now if it is missing."""
    installation = INSTALLATIONS[peer]
    folder = PEERS / installation.environment
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(repr(installation).encode()).hexdigest()
    # The last file, so that an interrupted installation begins anew.
    stamp = folder / f".installed-{peer}"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"setting up {peer} in {folder} ...", file=sys.stderr, flush=True)
    _system_packages(installation.system)
    if not python.exists():
        base = _base_python(installation.python)
        _run([base, "-m", "venv", "--clear", folder], f"could not make {folder}")
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    for packages in installation.packages:
        _run([*pip, *packages], f"could not install {' '.join(packages)}")
    # The worker imports all it needs, and ends with its stdin.
    worker = f"benchmarks.peers.{installation.worker}"
    _run([python, "-m", worker], f"{worker} cannot import what was installed")
    stamp.write_text(wanted)
    return python


def _run(command: list[str | Path], failure: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UnavailableError(f"{failure}: {said[-1] if said else 'no reason given'}")


def _system_packages(packages: tuple[str, ...]) -> None:
    """Install Debian's packages, if they are missing."""
    if not packages:
        return
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ", *packages]
    if shutil.which("apt-get") is None:
        raise UnavailableError(f"it needs {' '.join(packages)}, and there is no apt-get here")
    known = subprocess.run(query, capture_output=True, text=True, check=False)
    if known.returncode == 0 and set(known.stdout.split()) == {"installed"}:
        return
    sudo = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    _run([*sudo, "apt-get", "update"], "apt-get update failed")
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    _run([*sudo, *install], f"apt-get could not install {' '.join(packages)}")


@cache
def _base_python(least: tuple[int, int]) -> str:
    """Return an interpreter that is new enough: this one, one on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    newer = [f"3.{minor}" for minor in range(least[1], 15)]
    candidates = [
        sys.executable,
        *(f"python{version}" for version in newer),
        *(
            str(path)
            for version in newer
            for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
        ),
    ]
    test = f"import sys; sys.exit(sys.version_info < {least})"
    for candidate in candidates:
        if (
            shutil.which(candidate)
            and not subprocess.run(
                [candidate, "-c", test], capture_output=True, check=False
            ).returncode
        ):
            return candidate
    raise UnavailableError(f"it needs Python {least[0]}.{least[1]}, and none was found")


def main() -> int:
    """Install the environments of the peers named, or of all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.environments", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="peer", help=f"of {', '.join(INSTALLATIONS)}")
    wanted = parser.parse_args().peers or list(INSTALLATIONS)
    unknown = sorted(set(wanted) - set(INSTALLATIONS))
    if unknown:
        parser.error(f"unknown peers {unknown}; there are {list(INSTALLATIONS)}")
    failed = 0
    for peer in wanted:
        try:
            print(f"{peer}: {interpreter(peer)}")
        except UnavailableError as error:
            failed += 1
            print(f"{peer}: not available, {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
