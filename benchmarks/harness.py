"""Interleaved repeats of named contestants: medians, ratios against one of them, and a table."""

import errno
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent

# Runs its workload once and returns one figure, in the unit of the comparison.
Contestant = Callable[[], float]


@dataclass(frozen=True)
class Comparison:
    """Figures of several contestants at one workload, in the order they were measured."""

    title: str
    unit: str
    reference: str
    samples: Mapping[str, Sequence[float]]
    # Contestants that could not be measured, and why.
    absent: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    lower_is_better: bool = False

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

    def ratio(self, name: str) -> float:
        """Return the median over the rounds of this contestant's figure over the reference's.

        Both figures of a round saw the same machine, so other load that changes between rounds moves the medians but
        hardly this.
        """
        pairs = zip(self.samples[name], self.samples[self.reference], strict=True)
        return statistics.median(figure / reference for figure, reference in pairs)

    def as_dict(self) -> dict[str, Any]:
        contestants = {
            name: {
                "median": self.median(name),
                "ratio": self.ratio(name),
                "samples": list(samples),
            }
            for name, samples in self.samples.items()
        }
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "lower is better": self.lower_is_better,
            "reference": self.reference,
            "contestants": contestants,
            "absent": dict(self.absent),
        }

    def table(self) -> str:
        width = max(len(name) for name in (*self.samples, *self.absent))
        columns = f"{self.unit:>16}  {'lowest':>12}  {'highest':>12}  {'ratio':>7}  {'1/ratio':>7}"
        lines = [
            f"{name:{width}}  {_figure(self.median(name)):>16}  {_figure(min(samples)):>12}"
            f"  {_figure(max(samples)):>12}  {_figure(self.ratio(name), 3):>7}"
            f"  {_figure(1 / self.ratio(name), 3):>7}"
            for name, samples in self.samples.items()
        ]
        lines += [f"{name:{width}}  did not run: {reason}" for name, reason in self.absent.items()]
        return "\n".join(
            [f"{self.title} (ratio 1: {self.reference})", f"{'':{width}}  {columns}", *lines]
        )


def interleave(
    title: str,
    unit: str,
    contestants: Mapping[str, Contestant],
    *,
    reference: str,
    repeats: int,
    pause: float = 0.02,
    absent: Mapping[str, str] | None = None,
    name: str = "",
    lower_is_better: bool = False,
) -> Comparison:
    """Run A, B, C, A, B, C, ..., after one round that is not counted.

    The pause lets the threads of one contestant go to sleep (OpenMP's spin for a while after their last loop) before
    the next one is measured. A contestant that fails, unless it is the reference, is added to `absent`, which the table
    lists.
    """
    if reference not in contestants:
        raise ValueError(f"`reference` (={reference!r}) must be one of {list(contestants)}.")
    samples: dict[str, list[float]] = {each: [] for each in contestants}
    missing = dict(absent or {})
    for turn in range(repeats + 1):
        for each in list(samples):
            time.sleep(pause)
            try:
                figure = contestants[each]()
            except Exception as error:
                if each == reference:
                    raise
                missing[each] = reason(error)
                del samples[each]
            else:
                if turn > 0:
                    samples[each].append(figure)
    return Comparison(title, unit, reference, samples, missing, name, lower_is_better)


def reason(error: Exception) -> str:
    """Return the last line of an error, for a table."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def status(words: str) -> None:
    """Report the progress of long work on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def in_new_process(
    script: str,
    python: Path | str = sys.executable,
    variables: Mapping[str, str] | None = None,
    timeout: float = 300.0,
) -> dict[str, Any]:
    """Run a script in a process of its own; return its answer, the last line it prints, in JSON."""
    done = subprocess.run(
        [python, "-c", script],
        cwd=ROOT,
        env={**os.environ, **(variables or {})},
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"a measured process failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class Peer:
    """Contestant in another environment: a process that answers a JSON line with a JSON line.

    Between an answer and the next request it is stopped, with its own processes: otherwise it would prefetch in the
    turn of another contestant.
    """

    def __init__(
        self,
        python: Path,
        module: str,
        timeout: float = 300.0,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.timeout = timeout
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [python, "-m", module],
            cwd=ROOT,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            process_group=0,
        )

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise RuntimeError(self._last_words(do)) from error
        # An exception in one of FFCV's threads leaves its consumer waiting forever.
        ready, _, _ = select.select([self._process.stdout], [], [], self.timeout)
        if not ready:
            raise TimeoutError(f"{self.module} gave no answer to {do!r} in {self.timeout:g} s.")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._last_words(do))
        self._signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def memory(self) -> int:
        """Return the bytes that only this process and its own hold, without the pages of files."""
        return sum(_own_bytes(process) for process in _processes(self._process.pid))

    def kill(self) -> None:
        """Kill the process and its own at once, whatever they do."""
        self._signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Close the process, which ends by itself with its stdin unless it hangs.

        A second call does nothing.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.close()
            self._process.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _last_words(self, do: str) -> str:
        self._process.wait(timeout=10)
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace").strip()[-2000:]
        return f"{self.module} ended at the request {do!r}; it said last:\n{words}"


def _processes(group: int) -> Iterator[Path]:
    """Yield the processes of a group."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if os.getpgid(int(process.name)) == group:
                    yield process
            except ProcessLookupError:
                continue


def _own_bytes(process: Path) -> int:
    # Each of several processes that share memory counts its part, so that the parts add up.
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
        # It ended and was not waited for yet: it holds no memory any more.
        return 0
    kilobytes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return 1024 * (int(kilobytes["Pss_Anon"]) + int(kilobytes["Pss_Shmem"]))


def _figure(value: float, digits: int = 4) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
