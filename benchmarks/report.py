"""Report of a file of results: tables in README.md and docs/benchmarks.md, and charts in docs/charts.

`python -m benchmarks.report benchmarks/results/DATE.json` rewrites all of them.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.contestants import CONTESTANTS, LIBRARIES, LOADERX, SCALING
from benchmarks.harness import ROOT
from benchmarks.side_by_side import CACHED, COLD

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "benchmarks.md"
CHARTS = ROOT / "docs" / "charts"
RESULTS = ROOT / "benchmarks" / "results"
# The rows of the README. Two of them show where loaderx loses.
CHOSEN = (
    *("gather-3KB", "cifar", "imagenet", "skeletons-zstd", "windows"),
    *("first-batch", "training"),
)
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
LIBRARY = {
    **{contestant.name: contestant.library for contestant in (*CONTESTANTS, *SCALING)},
    COLD: LOADERX.library,
    CACHED: LOADERX.library,
}
PEERS = tuple(library for library in LIBRARIES if library != LOADERX.library)
OWN, OTHER = "#d9480f", "#adb5bd"
# Ratios of the same pair differ by this much from run to run: a smaller difference is not a loss.
LEVEL = 0.95

Results = Mapping[str, Any]


def advantage(comparison: Results, contestant: str) -> float:
    """Return the ratio by which loaderx is better; below 1 it is worse."""
    ratio = comparison["contestants"][contestant]["ratio"]
    return float(ratio if comparison["lower is better"] else 1 / ratio)


def best(comparison: Results, library: str) -> str | None:
    """Return the best configuration of a library."""
    names = [name for name in comparison["contestants"] if LIBRARY[name] == library]
    return min(names, key=lambda name: advantage(comparison, name), default=None)


def table(comparisons: Iterable[Results], charts: str) -> str:
    """Return Markdown: one row for each workload with a link to its chart, a column for each library."""
    comparisons = list(comparisons)
    peers = _present(comparisons)
    lines = [
        f"| | {LOADERX.name} | {' | '.join(peers)} |",
        "|---|" + "---:|" * (1 + len(peers)),
    ]
    for comparison in comparisons:
        reference = comparison["reference"]
        contestants = comparison["contestants"]
        own = f"{_figure(contestants[reference]['median'])} {comparison['unit']}"
        for name in contestants:
            if name != reference and LIBRARY[name] == LOADERX.library:
                how = name.removeprefix(f"{LOADERX.name}, ").replace("nothing", "with nothing")
                own += f"; {_figure(contestants[name]['median'])} {how}"
        cells = [_cell(comparison, library) for library in peers]
        chart = f"[{comparison['title']}]({charts}/{comparison['name']}.png)"
        lines.append(f"| {chart} | {own} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _present(comparisons: Iterable[Results]) -> list[str]:
    """Return the peers that were asked for any of these workloads, whether they could do it or not."""
    found = {
        LIBRARY.get(name)
        for comparison in comparisons
        for name in (*comparison["contestants"], *comparison["absent"])
    }
    return [library for library in PEERS if library in found]


def _cell(comparison: Results, library: str) -> str:
    name = best(comparison, library)
    if name is None:
        return "–"
    times = advantage(comparison, name)
    return f"**{times:.2g}**" if times < LEVEL else f"{_short(times)}"


def losses(results: Results) -> list[str]:
    """List the workloads at which a contestant is better than loaderx, the worst first."""
    found = []
    for comparison in _comparisons(results):
        for library in PEERS:
            name = best(comparison, library)
            if name is not None and advantage(comparison, name) < LEVEL:
                times = advantage(comparison, name)
                found.append(
                    (times, f"{comparison['name']}: {name} is {1 / times:.2g} times as good")
                )
    return [words for _, words in sorted(found)] + list(_smaller_growth(results))


def _smaller_growth(results: Results) -> Iterator[str]:
    """Yield the sizes at which a contestant is better than loaderx."""
    for growth in results["workloads"]:
        own = growth.get("series", {}).get(LOADERX.name, {})
        for name, figures in growth.get("series", {}).items():
            better = [
                f"{int(size):,}"
                for size, figure in figures.items()
                if (own[size] / figure if growth["lower is better"] else figure / own[size])
                > 1 / LEVEL
            ]
            if better:
                yield f"{growth['name']}: {name} is better at {', '.join(better)} {growth['size']}"


def absences(results: Results) -> dict[str, list[str]]:
    """Return the reasons why contestants did not run, and the workloads."""
    reasons: dict[str, list[str]] = {}
    for measured in results["workloads"]:
        for name, why in measured["absent"].items():
            # Without the type of the exception.
            words = re.sub(r"^[\w.]+Error: ", "", why).rstrip(".")
            workloads = reasons.setdefault(f"{LIBRARY.get(name, name)}: {words}", [])
            if measured["name"] not in workloads:
                workloads.append(measured["name"])
    return reasons


def introduction(results: Results) -> str:
    """Say when and on which machine the figures were measured, and how to read a table of them."""
    machine = results["machine"]
    facts = f"{machine['cores']} cores, {machine['architecture']}, Python {machine['python']}"
    return (
        f"Measured by `make bench` on {results['date']} ({facts}; JAX {machine['jax']}, Numba {machine['numba']}). "
        "The first column is loaderx. The others say how many times as good loaderx is as each library in its best "
        "configuration: rows in the same time, or how much less it needs of what is counted. Where loaderx loses, the "
        "figure is **bold**. A dash is what a library cannot do."
    )


def summary(results: Results) -> str:
    """Return the section of the README between its markers."""
    chosen = [one for one in _comparisons(results) if one["name"] in CHOSEN]
    return f"{introduction(results)}\n\n{table(chosen, 'docs/charts')}"


def full(results: Results) -> str:
    """Return the section of the page about benchmarks between its markers."""
    compared = sum(len(comparison["contestants"]) - 1 for comparison in _comparisons(results))
    lines = [
        introduction(results),
        "",
        table(_comparisons(results), "charts"),
        "",
        "### Where loaderx loses",
        "",
        f"Of {compared} comparisons:",
        "",
        *(f"- {words}" for words in losses(results) or ["nowhere"]),
        "",
        "### Growth with rows and batch size",
        "",
        *(
            f"![{growth['title']}](charts/{growth['name']}.png)"
            for growth in results["workloads"]
            if "series" in growth
        ),
        "",
        "### Charts of all workloads",
        "",
        *(
            f"![{comparison['title']}](charts/{comparison['name']}.png)"
            for comparison in _comparisons(results)
        ),
        "",
        "### Libraries that did not run, and why",
        "",
        *(f"- {why} ({', '.join(where)})" for why, where in sorted(absences(results).items())),
    ]
    return "\n".join(lines)


def write_between(markdown: str, file: Path, begin: str = BEGIN, end: str = END) -> None:
    """Replace the text of a file between the markers."""
    text = file.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{file} must hold {begin} and {end} once each.")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    file.write_text(f"{before}{begin}\n{markdown}\n{end}{after}")


def write_report(results: Results) -> None:
    """Write the tables of the README and of the site, and all charts."""
    write_between(summary(results), README)
    write_between(full(results), PAGE)
    write_charts(results, CHARTS)


def write_charts(results: Results, folder: Path) -> None:
    """Draw a chart for every workload."""
    for measured in results["workloads"]:
        draw = lines_chart if "series" in measured else bar_chart
        draw(measured, folder / f"{measured['name']}.png")
    overview_chart(results, folder / "overview.png")


def overview_chart(results: Results, file: Path) -> None:
    """Draw rates of all libraries relative to loaderx, in their best configurations: a row of dots per workload."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    shown = [one for one in _comparisons(results) if one["unit"] == "rows/s" and _present([one])]
    figure = Figure(figsize=(9, 1.5 + 0.46 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color=OWN, linewidth=3, label=LOADERX.name)
    axes.set_prop_cycle(color=[*colormaps["tab10"](range(10)), "black"])
    for library, marker in zip(PEERS, "osD^vP*Xhd<", strict=True):
        places = [
            (1 / advantage(one, name), row)
            for row, one in enumerate(shown)
            if (name := best(one, library)) is not None
        ]
        if places:
            axes.plot(*zip(*places, strict=True), marker, markersize=7, alpha=0.85, label=library)
    titles = [fill(one["title"].partition(", batches")[0], 42) for one in shown]
    axes.set_yticks(range(len(shown)), titles, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    ticks = (0.001, 0.01, 0.03, 0.1, 0.3, 1)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel("rows per second, loaderx = 1 (logarithmic)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=6, fontsize=9, frameon=False)
    figure.savefig(file, dpi=130)


def bar_chart(comparison: Results, file: Path) -> None:
    """Draw a bar for every contestant, the best first, on a logarithmic scale because figures differ by magnitudes."""
    from matplotlib.figure import Figure

    contestants = comparison["contestants"]
    names = sorted(contestants, key=lambda name: contestants[name]["median"])
    if not comparison["lower is better"]:
        names.reverse()
    figures = [contestants[name]["median"] for name in names]
    colours = [OWN if LIBRARY[name] == LOADERX.library else OTHER for name in names]
    figure = Figure(figsize=(8, 1.3 + 0.36 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, figures, color=colours)
    axes.bar_label(bars, labels=[f" {_figure(value)}" for value in figures], fontsize=9)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(figures) / 2.5, max(figures) * 3)
    better = "less" if comparison["lower is better"] else "more"
    axes.set_xlabel(f"{comparison['unit']}, {better} is better (logarithmic)")
    axes.set_title(comparison["title"], fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)


def lines_chart(growth: Results, file: Path) -> None:
    """Draw a line for every contestant, with both axes logarithmic."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    markers = "osD^vP*Xhd<>p8"
    # Ten colours would repeat.
    axes.set_prop_cycle(color=colormaps["tab20"](range(20)))
    for number, (name, figures) in enumerate(growth["series"].items()):
        own = LIBRARY[name] == LOADERX.library
        axes.plot(
            [int(size) for size in figures],
            list(figures.values()),
            marker=markers[number % len(markers)],
            markersize=5,
            color=OWN if own else None,
            linewidth=3 if own else 1.2,
            zorder=3 if own else 2,
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(growth["size"])
    axes.set_ylabel(growth["unit"])
    axes.set_title(growth["title"], fontsize=11)
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    figure.savefig(file, dpi=110)


def _comparisons(results: Results) -> Iterator[Results]:
    return (measured for measured in results["workloads"] if "contestants" in measured)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def main() -> int:
    """Write the report of a file of results."""
    write_report(json.loads(Path(sys.argv[1]).read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
