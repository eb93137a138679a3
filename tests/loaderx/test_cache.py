"""Cache of compiled kernels on disk: used by the next process, never stale, and never needed."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loaderx import DataLoader
from loaderx.kernels import feistel, random
from tests.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
ROWS = np.arange(300, dtype=np.int32).reshape(100, 3) ** 2

# One batch, and how often the code of a kernel came from the disk and how often from the compiler.
PROGRAM = """
import json, sys
import numpy as np
import loaderx
from loaderx.kernels import feistel, gathering, random
{preparation}
rows = np.arange(300, dtype=np.int32).reshape(100, 3) ** 2
def batch(shuffle):
    loader = loaderx.DataLoader(rows, batch_size=8, shuffle=shuffle, output="numpy", seed=3)
    return loader.batch(1).tolist()
keys = np.empty(4, np.uint32)
feistel.round_keys(np.uint64(7), keys)
found = {{"keys": keys.tolist(), "folded": int(random.fold(7, 1)), "in_order": batch(False)}}
used = 3  # round_keys, fold and copy_rows_holding_gil
{more}
values = [value for module in (feistel, gathering, random) for value in vars(module).values()]
kernels = {{id(value): value for value in values if hasattr(value, "stats")}}.values()
print(json.dumps({{
    **found,
    "file": loaderx.__file__,
    "used": used,
    "loaded": sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels),
    "compiled": sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels),
}}))
"""
# Takes as long to compile as all else.
SHUFFLED = """
found["shuffled"] = batch(True)
used += 1  # copy_shuffled_holding_gil
"""


def copy_tree(source, target, ignore=None):
    for name in ("loaderx", "kernels"):
        shutil.copytree(source / name, target / name, symlinks=True, ignore=ignore)
    return target


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """Return a copy of the library after its first run, and what that run gave."""
    folder = tmp_path_factory.mktemp("compiled") / "tree"
    copy_tree(REPOSITORY, folder, shutil.ignore_patterns("__pycache__"))
    return folder, run(folder, SHUFFLED)


@pytest.fixture
def tree(first_run, tmp_path):
    """Return a copy of the library with no kernel compiled in it."""
    return copy_tree(first_run[0], tmp_path / "tree", shutil.ignore_patterns("*.nbc"))


@pytest.fixture
def compiled_tree(first_run, tmp_path):
    """Return a copy of the library with its kernels compiled: the cache does not depend on the path."""
    return copy_tree(first_run[0], tmp_path / "tree")


def run(tree, more="", preparation="", **environment):
    """Run the library in `tree` in a new process, without the caches of the user and of other tests."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOADERX_", "NUMBA_", "PYTHON", "XDG_"))
    }
    program = PROGRAM.format(preparation=preparation, more=more)
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tree,
        env={**inherited, "HOME": str(tree.parent / "home"), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    result = json.loads(finished.stdout)
    assert Path(result["file"]).parent == tree / "loaderx"
    return result


def check_batch(result):
    """Check that the batch equals that of this process, and that it has these rows."""
    keys = np.empty(4, np.uint32)
    feistel.round_keys(np.uint64(7), keys)
    assert result["keys"] == keys.tolist()
    assert result["folded"] == random.fold(7, 1)
    assert result["in_order"] == ROWS[8:16].tolist()
    if "shuffled" in result:
        loader = DataLoader(ROWS, batch_size=8, output="numpy", seed=3)
        assert result["shuffled"] == ROWS[loader.indices(1)].tolist()


def cache_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix == ".nbc")


def times_written(folder):
    return {path: path.stat().st_mtime_ns for path in cache_files(folder)}


def check_loaded(result):
    check_batch(result)
    assert result["compiled"] == 0
    assert result["loaded"] >= result["used"]


def check_compiled(result):
    check_batch(result)
    assert result["loaded"] == 0
    assert result["compiled"] >= result["used"]


def test_a_second_process_compiles_nothing_even_if_the_time_of_files_changes(
    first_run, compiled_tree
):
    _, first = first_run
    assert "shuffled" in first
    check_compiled(first)
    written = times_written(compiled_tree)
    assert len(written) >= first["compiled"]
    for path in (compiled_tree / "kernels").glob("*.py"):
        os.utime(path, (0, 0))

    check_loaded(run(compiled_tree, SHUFFLED))

    assert times_written(compiled_tree) == written


def block(tree):
    """Put files where cache folders would be: the one kind of unwritable folder that stops root as well."""
    for folder in (tree / "loaderx", tree / "loaderx" / "sources", tree / "kernels"):
        shutil.rmtree(folder / "__pycache__")
        (folder / "__pycache__").write_text("not a folder")


def below_a_file(tmp_path):
    """Return a path that nobody can create."""
    file = tmp_path / "file"
    file.write_text("not a folder")
    return str(file / "folder")


@pytest.mark.parametrize(
    "names",
    [
        ["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"],
        pytest.param(["HOME", "XDG_CACHE_HOME"], marks=pytest.mark.long),
        pytest.param(["HOME", "NUMBA_CACHE_DIR"], marks=pytest.mark.long),
    ],
)
def test_without_any_writable_folder_a_batch_comes_out_right(tree, tmp_path, names):
    block(tree)
    nowhere = below_a_file(tmp_path)
    result = run(tree, **dict.fromkeys(names, nowhere))
    check_batch(result)
    assert result["loaded"] == 0
    assert cache_files(tmp_path) == []


def test_the_home_folder_serves_when_the_library_cannot_be_written(tree, tmp_path):
    block(tree)
    home = tmp_path / "home"
    home.mkdir()
    check_compiled(run(tree, HOME=str(home)))
    check_loaded(run(tree, HOME=str(home)))
    assert cache_files(home) != []


def test_a_cache_folder_that_vanishes_during_a_run_does_not_matter(tree, tmp_path):
    cache = tmp_path / "cache"
    replace_by_file = (
        "feistel.round_keys(np.uint64(7), np.empty(4, np.uint32)); "
        f"import shutil; shutil.rmtree({str(cache)!r}); open({str(cache)!r}, 'w').close()"
    )
    check_compiled(run(tree, preparation=replace_by_file, NUMBA_CACHE_DIR=str(cache)))
    assert cache.is_file()


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def fill_with_garbage(path):
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def flip_a_bit(part, path):
    content = bytearray(path.read_bytes())
    content[len(content) * part // 4] ^= 1 << part
    path.write_bytes(content)


def open_to_others(path):
    path.chmod(0o664)


DAMAGES = [
    truncate,
    functools.partial(flip_a_bit, 1),
    empty,
    functools.partial(flip_a_bit, 2),
    fill_with_garbage,
    functools.partial(flip_a_bit, 3),
    open_to_others,
]


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(1, len(DAMAGES)))],
)
def test_a_file_that_is_damaged_or_open_to_others_costs_a_compilation_and_not_the_run(
    compiled_tree, first
):
    kinds, compiled = {}, times_written(compiled_tree)
    # In the order in which they were compiled: the first are those that every run needs.
    for number, path in enumerate(sorted(compiled, key=compiled.get), first):
        kinds[path] = number % len(DAMAGES)
        DAMAGES[kinds[path]](path)
    before = times_written(compiled_tree)

    check_compiled(run(compiled_tree, SHUFFLED if first else ""))

    # Written anew, of every kind.
    after = times_written(compiled_tree)
    rewritten = {kinds[path] for path in kinds if after[path] != before[path]}
    assert len(rewritten) == len(DAMAGES)
    check_loaded(run(compiled_tree))


def test_code_in_a_folder_that_others_may_write_to_is_not_loaded(compiled_tree, tmp_path):
    """Check that the user's own folder is used instead."""
    cache = str(tmp_path / "own")
    (compiled_tree / "kernels" / "__pycache__").chmod(0o775)
    check_compiled(run(compiled_tree, LOADERX_CACHE_DIR=cache))
    assert cache_files(tmp_path / "own") != []
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    check_loaded(run(compiled_tree, LOADERX_CACHE_DIR=cache))


@pytest.mark.parametrize("more", ["", pytest.param(SHUFFLED, marks=pytest.mark.long)])
def test_a_kernel_is_compiled_anew_when_one_that_it_calls_changes(first_run, compiled_tree, more):
    _, before = first_run
    source = compiled_tree / "kernels" / "random.py"
    text = source.read_text()
    statement = "return threefry(np.uint64(key), np.uint64(number))"
    assert text.count(statement) == 1
    # Longer than before: Python itself tells sources apart by size and by the second they were written in.
    source.write_text(text.replace(statement, f"{statement} ^ np.uint64(0x0123456789ABCDEF)"))

    after = run(compiled_tree, more)

    assert after["folded"] == before["folded"] ^ 0x0123456789ABCDEF
    # `round_keys` did not change; `fold`, which it calls, is in another file.
    changed = np.array([0x89ABCDEF, 0x01234567, 0x89ABCDEF, 0x01234567])
    assert after["keys"] == (np.array(before["keys"]) ^ changed).tolist()
    if more:
        assert after["shuffled"] != before["shuffled"]
