"""`loaderx bench`: measure a user's own loader, its stages, and say how to make it faster."""

import argparse
import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .loaders import TARGET_HELP, with_loader
from .terminal import DONE, readable_bytes, write_line, write_note

if TYPE_CHECKING:
    from loaderx.loader import DataLoader

EPILOG = """\
The loader runs as in training, but nothing is done with its batches. `time` is the time of one thread for one sample,
and `share` the part of the time of all threads. Reading rows and all compiled ops are one pass: it is measured as a
whole, and divided in proportion to the time of each on its own. `waiting` is time in which threads wait for each
other, for Python or for other programs.

The limit is the speed of this machine when it only copies the bytes that a sample has in the source and in the
batch, with as many threads, measured in the same run. Work that stays in the CPU caches may be faster than that.

examples:
  loaderx bench train.py:loader
  loaderx bench project.data:make_loader --seconds 20
  loaderx bench train.py:loader --json
"""
# Smaller shares of the work are not worth a sentence.
PYTHON_SHARE = WAITING_SHARE = 0.2
MAJORITY = 0.5
LIMIT_SHARE = 0.5


def add(commands: Any) -> None:
    """Add the parser of this command."""
    parser = commands.add_parser(
        "bench",
        help="measure your own loader: its speed, each of its stages, and the limit of this machine",
        description="Measure a DataLoader of yours: its speed, and what its time goes into.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="module:loader", help=TARGET_HELP)
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=5.0,
        metavar="N",
        help="seconds to run after the warm-up (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="print all numbers as a JSON object")
    parser.set_defaults(run=lambda options: with_loader(options, run))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


@dataclass(frozen=True)
class Stage:
    """Stage of a sample: its kind, its name, how it runs, and its seconds."""

    kind: str
    name: str
    how: str
    seconds: float
    # The op or the source by the name that the user wrote, and how to make it faster.
    what: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Limit:
    """Speed of this machine if the bytes of a sample were only copied."""

    bytes_read: int
    bytes_written: int
    threads: int
    bytes_per_second: float
    samples_per_second: float
    # The loader's speed as a share of the limit.
    reached: float


@dataclass(frozen=True)
class Report:
    """Result of the measurement."""

    fields: dict[str, str]
    rows: int
    batch_size: int
    workers: int
    cores: int
    first_batch_seconds: float
    seconds: float
    batches: int
    samples: int
    stages: list[Stage]
    limit: Limit

    def share(self, *stages: Stage) -> float:
        """Return the share of stages in the time of all threads."""
        whole = sum(stage.seconds for stage in self.stages)
        return sum(stage.seconds for stage in stages) / whole if whole else 0.0

    def of_kind(self, *kinds: str) -> list[Stage]:
        """Return the stages of these kinds, slowest first."""
        found = [stage for stage in self.stages if stage.kind in kinds]
        return sorted(found, key=lambda stage: -stage.seconds)


def run(loader: "DataLoader", options: argparse.Namespace) -> int:
    """Measure, and print the report."""
    from .stages import measure

    if sys.stderr.isatty():
        write_note("each op is compiled on its own, once; this may take a while")
    report = measure(loader, options.seconds)
    if options.json:
        facts = dataclasses.asdict(report)
        for shown, stage in zip(facts["stages"], report.stages, strict=True):
            shown["share"] = report.share(stage)
        facts["batches_per_second"] = report.batches / report.seconds
        facts["samples_per_second"] = report.samples / report.seconds
        facts["advice"] = advice(report)
        write_line(json.dumps(facts, indent=2))
    else:
        write_line("\n".join(lines(options.target, report)))
    return DONE


def lines(target: str, report: Report) -> list[str]:
    """Return the lines of the report for people."""
    limit = report.limit
    fields = ", ".join(f"{name} {spec}" for name, spec in report.fields.items())
    each = report.seconds / report.batches
    threads = f"{_plural(report.workers, 'worker')} on {_plural(report.cores, 'core')}"
    shown = [
        f"{target}: {report.rows:,} rows, batches of {report.batch_size:,}: {fields}",
        f"{threads}, first batch after {readable_seconds(report.first_batch_seconds)}",
        "",
        "   ".join(
            (
                f"  {_number(report.batches / report.seconds)} batches/s",
                f"{_number(report.samples / report.seconds)} samples/s",
                f"a batch every {readable_seconds(each)}",
            )
        ),
        "",
    ]
    rows = [("stage", "time", "share", "how")]
    rows += [
        (stage.name, readable_seconds(stage.seconds), f"{report.share(stage):.1%}", stage.how)
        for stage in report.stages
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for number, (name, time, share, how) in enumerate(rows):
        line = f"  {name:<{widths[0]}}  {time:>{widths[1]}}  {share:>{widths[2]}}  {how}"
        shown.append(line.rstrip())
        if number == 0:
            shown.append("  " + "  ".join("-" * width for width in widths))
    moved = (
        f"{readable_bytes(limit.bytes_read)} read and {readable_bytes(limit.bytes_written)} written"
    )
    speed = f"{readable_bytes(round(limit.bytes_per_second))}/s"
    shown += [
        "",
        f"limit:  {_number(limit.samples_per_second)} samples/s, if the bytes of each ({moved}) were only copied,",
        f"        by {_plural(limit.threads, 'thread')} at {speed}; this loader is at {_percent(limit.reached)} of it",
        f"advice: {advice(report)}",
    ]
    return shown


def advice(report: Report) -> str:
    """Return one sentence: the part that takes most of the work, and how to make it faster."""
    waiting = report.share(*report.of_kind("waiting"))
    python = [stage for stage in report.of_kind("fetch", "op", "hook") if stage.how == "Python"]
    # One thread at a time runs Python code, and the others wait for it.
    if waiting < MAJORITY or report.share(*python) >= MAJORITY * (1 - waiting):
        also = f"; threads wait {_percent(waiting)} of the time" if waiting >= WAITING_SHARE else ""
        return f"{_advice(report, 1 - waiting)}{also}."
    return (
        f"threads wait {_percent(waiting)} of the time: for each other, if batches are small or few, "
        "for Python, or for cores that other programs use."
    )


def _advice(report: Report, work: float) -> str:
    ops, reads = report.of_kind("op"), report.of_kind("fetch")
    slow = [stage for stage in ops if stage.how == "Python"]
    if slow and report.share(*slow) >= PYTHON_SHARE * work:
        return (
            f"a Python function runs per sample: {slow[0].what} takes {_share(report, slow[0])}; "
            f"{slow[0].hint}"
        )
    hooks = report.of_kind("hook")
    if hooks and report.share(*hooks) >= MAJORITY * work:
        return (
            f"the function of each batch takes {_share(report, *hooks)}: its work per sample "
            "belongs into `transforms`, where it is compiled"
        )
    if report.limit.reached >= LIMIT_SHARE:
        return (
            f"the loader is not the limit: it is at {_percent(report.limit.reached)} of what "
            "this machine does if it only copies"
        )
    if report.share(*ops) >= MAJORITY * work:
        # The same op may be used for several fields.
        same = {op.what: [each for each in ops if each.what == op.what] for op in ops}
        name, most = max(same.items(), key=lambda item: report.share(*item[1]))
        alone = f"{name} alone {_share(report, *most)}" if len(same) > 1 else f"all of it {name}"
        hint = f"; {most[0].hint}" if most[0].hint else ""
        return f"the transforms take {_share(report, *ops)}: {alone}{hint}"
    if report.share(*reads) >= MAJORITY * work:
        first = reads[0]
        return f"the source takes most: {first.what}, {first.name} {_share(report, first)}; {first.hint}"
    fixed = report.of_kind("order", "hand-off")
    if report.share(*fixed) >= MAJORITY * work:
        return (
            f"the fixed cost of every batch takes {_share(report, *fixed)}: "
            "larger batches are faster"
        )
    rest = sorted(report.stages, key=lambda stage: -stage.seconds)
    named = [
        f"{stage.what or stage.name} {_share(report, stage)}"
        for stage in rest
        if stage.kind != "waiting"
    ]
    return f"no stage dominates: {' and '.join(named[:2])}"


def _share(report: Report, *stages: Stage) -> str:
    return _percent(report.share(*stages))


def _percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def readable_seconds(seconds: float) -> str:
    """Return seconds in the unit that shows about three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995:
            return (
                f"{seconds / size:.3g} {unit}"
                if seconds < 999.5 * size
                else f"{seconds / size:,.0f} {unit}"
            )
    return f"{seconds * 1e9:.0f} ns"
