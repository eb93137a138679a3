"""Contestants of the side-by-side benchmarks: their configurations, and the requests to them."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from benchmarks.environments import INSTALLATIONS, interpreter
from benchmarks.harness import Peer
from benchmarks.workloads import Workload

WORKERS = 2


@dataclass(frozen=True)
class Contestant:
    """Library in one configuration, which its worker explains."""

    name: str
    library: str  # configurations of one library share a column of the report
    workers: int
    peer: str | None = None  # the environment it needs, unless it runs in this one
    worker: str = ""  # the module, if it runs in this environment
    # Whether it differs from another configuration only if there is something to compute.
    chains_only: bool = False
    # The way it does the work, if it has several: see its worker.
    variant: str = ""
    # Whether it is for JPEG files, or for all but these; None is for both.
    jpeg: bool | None = None

    def takes_part(self, work: Workload) -> bool:
        """Return whether it is a configuration for such a workload."""
        if self.jpeg is not None and self.jpeg != (work.kind == "jpeg"):
            return False
        return not self.chains_only or work.chain is not None

    def start(self, variables: Mapping[str, str] | None = None) -> Peer:
        """Start its process; install its environment if it is missing."""
        if self.peer is None:
            python, worker = Path(sys.executable), self.worker
        else:
            python = interpreter(self.peer)
            worker = f"benchmarks.peers.{INSTALLATIONS[self.peer].worker}"
        return Peer(python, worker, variables=variables)


LOADERX = Contestant("loaderx", "loaderx", WORKERS, worker="benchmarks.peers.loaderx_worker")
# Of JPEG files, which loaderx reads from a folder; and one worker, to see what the second is worth.
TAR = replace(LOADERX, name="loaderx, from a tar file", variant="tar", jpeg=True)
CONVERTED = replace(LOADERX, name="loaderx, from its own file", variant="converted", jpeg=True)
ONE_WORKER = replace(LOADERX, name="loaderx, with 1 worker", workers=1, jpeg=True)
CONVERTED_ONE_WORKER = replace(
    CONVERTED, name="loaderx, from its own file with 1 worker", workers=1
)
FFCV = Contestant("FFCV", "FFCV", WORKERS, peer="ffcv")

MEMMAP = "benchmarks.peers.memmap_worker"
OPENCV = Contestant(
    "OpenCV by hand, 2 threads",
    "by hand",
    WORKERS,
    worker="benchmarks.peers.jpeg_by_hand_worker",
    variant="opencv",
    jpeg=True,
)

CONTESTANTS = (
    LOADERX,
    TAR,
    CONVERTED,
    Contestant("np.memmap by hand", "by hand", 0, worker=MEMMAP, jpeg=False),
    Contestant(
        "by hand, 2 threads", "by hand", WORKERS, worker=MEMMAP, chains_only=True, jpeg=False
    ),
    OPENCV,
    replace(OPENCV, name="simplejpeg by hand, 2 threads", variant="simplejpeg"),
    Contestant("Grain, no workers", "Grain", 0, peer="grain", jpeg=False),
    Contestant("Grain, 2 workers", "Grain", WORKERS, peer="grain"),
    Contestant("torch, no workers", "torch", 0, peer="torch", jpeg=False),
    Contestant("torch, 2 workers", "torch", WORKERS, peer="torch"),
    FFCV,
    Contestant("DALI, CPU", "DALI", WORKERS, peer="dali"),
    Contestant("SPDL", "SPDL", WORKERS, peer="spdl"),
    Contestant(
        "SPDL, its decoder", "SPDL", WORKERS, peer="spdl-decoder", variant="decoder", jpeg=True
    ),
    Contestant("Cyreal", "Cyreal", WORKERS, peer="cyreal", jpeg=False),
    Contestant("jax-dataloader", "jax-dataloader", WORKERS, peer="jax-dataloader", jpeg=False),
    Contestant("Loadax, no workers", "Loadax", 0, peer="loadax", jpeg=False),
    Contestant("Loadax, 2 workers", "Loadax", WORKERS, peer="loadax", jpeg=False),
    Contestant("loaderx 2.8.19 of PyPI", "loaderx 2.8", WORKERS, peer="upstream", jpeg=False),
    Contestant("TurboLoader", "TurboLoader", WORKERS, peer="turboloader", jpeg=True),
)
# What a second worker is worth.
SCALING = (LOADERX, ONE_WORKER, CONVERTED, CONVERTED_ONE_WORKER)
# These store images that they have shrunk once.
SHRINKING = (CONVERTED, FFCV)
LIBRARIES = tuple(dict.fromkeys(contestant.library for contestant in CONTESTANTS))


class Entry:
    """Contestant in its process, with a loader over a workload."""

    def __init__(self, contestant: Contestant, peer: Peer) -> None:
        self.contestant, self.peer = contestant, peer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def restart(self) -> None:
        """Start a new process: not every loader frees everything if it is closed in an epoch."""
        self.peer.kill()
        self.peer = self.contestant.start()

    def prepare(self, work: Workload) -> None:
        """Let it write files of its own format."""
        self.peer.ask("prepare", work=asdict(work))

    def open(self, work: Workload, on_device: bool = False) -> None:
        """Open a loader, in place of the last one."""
        self.peer.ask(
            "open",
            work=asdict(work),
            workers=self.contestant.workers,
            on_device=on_device,
            variant=self.contestant.variant,
        )

    def check(self) -> dict[str, Any]:
        """Raise if an epoch is not the workload's; return a summary of its random part."""
        return self.peer.ask("check")

    def rows_per_second(self, seconds: float) -> float:
        answer = self.peer.ask("run", seconds=seconds)
        return float(answer["rows"] / answer["seconds"])

    def microseconds_per_batch(self, seconds: float) -> float:
        answer = self.peer.ask("run", seconds=seconds)
        return float(1e6 * answer["seconds"] / answer["batches"])

    def seconds_to_open(self, work: Workload) -> float:
        """Return the seconds to open a new loader up to its first batch, and close it again."""
        answer = self.peer.ask("opening", work=asdict(work), workers=self.contestant.workers)
        self.peer.ask("close")
        return float(answer["seconds"])

    def train(self, steps: int) -> dict[str, float]:
        """Return the seconds of so many steps of training, and those of waiting."""
        return self.peer.ask("train", steps=steps)
