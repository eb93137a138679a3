"""Statistics of shuffles, and those of NumPy's permutations, which `python -m tests.loaderx.shuffles` measures anew."""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("shuffles.json")
# From 4096 rows on the shuffle has fewer rounds, so 5000.
EPOCHS = {5: 10_000, 8: 10_000, 16: 10_000, 64: 6_000, 1000: 1_000, 5000: 1_000}
NUMPY_RUNS = 15
PARTNERS = (1, 2, 3, 31, 32, 33, 70, 71, 72, 499)


def stacked(epochs):
    return np.array(list(epochs), np.int32)


def numpy_epochs(rows, run):
    generator = np.random.default_rng([rows, run])
    return stacked(generator.permutation(rows) for _ in range(EPOCHS[rows]))


def some_places(count):
    """Return all places, or 200 of them if a table of all would have more cells than epochs can fill."""
    return np.arange(count) if count <= 1000 else np.linspace(0, count - 1, 200).astype(int)


def counted_by_place(values, kinds):
    """Count how often each value occurs in each column; many values are counted in 200 groups."""
    groups = kinds if kinds <= 1000 else 200
    columns = np.arange(values.shape[1], dtype=np.int64)
    cells = columns * groups + values.astype(np.int64) * groups // kinds
    return np.bincount(cells.reshape(-1), minlength=len(columns) * groups)


def rows_at_places(epochs):
    """Count how often each row is at each place."""
    rows = epochs.shape[1]
    return counted_by_place(epochs[:, some_places(rows)], rows)


def rows_before_others(epochs):
    """Count how often one row of each pair is before the other."""
    rows = epochs.shape[1]
    place_of = np.empty_like(epochs)
    np.put_along_axis(place_of, epochs, np.arange(rows, dtype=np.int32)[None], axis=1)
    # Rows outside: the epochs of a pair then lie side by side.
    place_of = np.ascontiguousarray(place_of.T)
    if rows <= 64:
        first, second = np.triu_indices(rows, 1)
        return np.count_nonzero(place_of[first] < place_of[second], axis=1)
    # All half million pairs would take a minute: each row with those next to it, on the grid too, and far from it.
    return np.concatenate(
        [
            np.count_nonzero(place_of[:-distance] < place_of[distance:], axis=1)
            for distance in PARTNERS
        ]
    )


def differences_of_neighbours(epochs):
    """Count how often a row is followed by the one at a distance, modulo the number of rows."""
    rows = epochs.shape[1]
    return np.bincount((np.diff(epochs, axis=1) % rows).reshape(-1), minlength=rows)[1:]


def differences_at_places(epochs):
    """Return the same for each place by itself."""
    rows = epochs.shape[1]
    places = some_places(rows - 1)
    differences = (epochs[:, places + 1] - epochs[:, places]) % rows
    return counted_by_place(differences - 1, rows - 1)


TABLES = (rows_at_places, rows_before_others, differences_of_neighbours, differences_at_places)


def statistics(epochs):
    """Return for each table the sum of squared deviations and the largest one."""
    out = []
    for table in TABLES:
        deviations = table(epochs)
        # Not their own mean: that of the pairs is half the epochs only if the shuffle is fair.
        expected = len(epochs) / 2 if table is rows_before_others else np.mean(deviations)
        deviations = deviations - expected
        out += [np.sum(deviations**2) / expected, np.max(np.abs(deviations))]
    return np.array(out)


def measured(rows):
    """Return mean and standard deviation of every statistic over runs of NumPy's permutation."""
    runs = [statistics(numpy_epochs(rows, run)) for run in range(NUMPY_RUNS)]
    return {"mean": list(np.mean(runs, axis=0)), "deviation": list(np.std(runs, axis=0, ddof=1))}


def main():
    found = {str(rows): measured(rows) for rows in EPOCHS}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
