"""`loaderx bench` measures the named loader, and reports a wrong name in one line."""

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loaderx import DataLoader, EncodedFiles, cli, transforms, write_array_record
from loaderx.commands import stages
from loaderx.commands.bench import Limit, Report, Stage, advice, lines, readable_seconds
from loaderx.commands.loaders import find
from loaderx.commands.stages import measure
from loaderx.transforms.advice import EQUIVALENTS
from tests.waiting import PATIENCE

PROGRAM = """
import numpy as np
import loaderx as lx
from loaderx import transforms as T

fields = {"image": lx.NPDataset("x.npy"), "label": lx.NPDataset("y.npy")}
normalize = T.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])
loader = lx.DataLoader(
    fields, batch_size=16, transforms={"image": [T.RandomFlip(), normalize]}, output="numpy"
)
number = 3


class Rows:
    def __len__(self):
        return 50

    def __getitem__(self, row):
        return np.full(4, row, np.float32)


def make():
    def double(batch):
        return {**batch, "data": batch["data"] * 2}

    return lx.DataLoader({"data": Rows()}, batch_size=16, num_epochs=1, transform=double)


def with_python():
    def invert(x):
        return 255 - x

    return lx.DataLoader(fields, batch_size=16, transforms={"image": [invert]}, output="numpy")


def needs(size):
    return loader


def nothing():
    return None


def fails():
    raise OSError("a mistake of theirs")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    # Measured badly but quickly: the speed at which this machine copies does not matter here.
    monkeypatch.setattr(stages, "COPY_SECONDS", 0.005)
    monkeypatch.setattr(stages, "COPIED_BYTES", 1 << 22)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("train", "broken", "quits", "hungry"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    generator = np.random.default_rng(0)
    np.save("x.npy", generator.integers(0, 256, (100, 16, 16, 3), np.uint8))
    np.save("y.npy", np.arange(100, dtype=np.int32) % 10)
    Path("train.py").write_text(PROGRAM)
    Path("broken.py").write_text("numbers = [1, 2]\nnumbers[5]\n")
    Path("hungry.py").write_text("import a_package_that_nobody_has\n")
    Path("quits.py").write_text("import sys\nsys.exit(3)\n")
    return tmp_path


@pytest.fixture
def measured(capsys):
    """Return a function that returns the report of a loader, from this process."""

    def measured(target, seconds=0.01):
        status = cli.main(["bench", target, f"--seconds={seconds}", "--json"])
        shown = capsys.readouterr()
        assert status == 0, shown.err
        return json.loads(shown.out)

    return measured


@pytest.mark.parametrize("target", ["train.py:loader", "train:loader"])
def test_a_report_for_people_has_speed_stages_limit_and_advice(target, capsys):
    assert cli.main(["bench", target, "--seconds", "0.01"]) == 0
    shown, said = capsys.readouterr()
    assert said == ""
    assert shown.startswith(
        f"{target}: 100 rows, batches of 16: image float32[16, 16, 3], label int32[]"
    )
    assert " batches/s " in shown
    assert " samples/s " in shown
    stages = ["order", "fetch image", "fetch label", "image: RandomFlip", "image: Normalize"]
    found = [line.strip() for line in shown.splitlines()]
    places = [
        next(number for number, line in enumerate(found) if line.startswith(f"{stage} "))
        for stage in [*stages, "hand-off", "waiting"]
    ]
    assert places == sorted(places)
    assert "\nlimit: " in shown
    assert shown.splitlines()[-1].startswith("advice: ")


def test_the_numbers_of_a_report_fit_together(measured):
    report = measured("train.py:loader")
    assert report["samples"] == 16 * report["batches"]
    assert report["samples_per_second"] == pytest.approx(report["samples"] / report["seconds"])
    assert sum(stage["share"] for stage in report["stages"]) == pytest.approx(1)
    assert all(stage["seconds"] >= 0 for stage in report["stages"])
    limit = report["limit"]
    assert (limit["bytes_read"], limit["bytes_written"]) == (16 * 16 * 3 + 4, 16 * 16 * 3 * 4 + 4)
    assert limit["reached"] == pytest.approx(
        report["samples_per_second"] / limit["samples_per_second"]
    )


def test_a_function_that_gives_a_finite_loader_of_python_code_is_measured_beyond_its_end(measured):
    # A busy machine may need longer for one epoch of four batches.
    reports = (measured("train.py:make", seconds) for seconds in (0.05, 1, 10))
    report = next(report for report in reports if report["batches"] > 4)
    # 16 + 16 + 16 + 2
    assert report["samples"] < 16 * report["batches"]
    by_kind = {stage["kind"]: stage for stage in report["stages"]}
    assert by_kind["fetch"]["how"] == "Python"
    assert by_kind["hook"]["name"] == "double (each batch)"
    assert by_kind["hook"]["seconds"] > 0


def test_a_file_may_be_called_as_a_module_that_is_in_use():
    Path("json.py").write_text(
        "import numpy as np\nimport loaderx as lx\n"
        'loader = lx.DataLoader(np.zeros((50, 4), np.float32), batch_size=16, output="numpy")\n'
    )
    program = """
import sys
import loaderx.commands.stages as stages
from loaderx.cli import main
stages.COPY_SECONDS = 0.005
sys.exit(main())
"""
    # -P, as the script `loaderx`: else Python has this folder before all others.
    python = [sys.executable, "-P", "-c", program]
    finished = subprocess.run(
        [*python, "bench", "json.py:loader", "--seconds", "0.01", "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert '"rows": 50' in finished.stdout


def test_an_op_in_python_is_called_so(measured):
    report = measured("train.py:with_python")
    (op,) = [stage for stage in report["stages"] if stage["kind"] == "op"]
    assert (op["name"], op["how"]) == ("image: invert", "Python")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("train.py", ["'train.py' must be module:name or file.py:name"]),
        ("nowhere:loader", ["no module 'nowhere'"]),
        ("nowhere.inside:loader", ["no module 'nowhere.inside'"]),
        ("nowhere.py:loader", ["no file nowhere.py"]),
        ("train.py:lodaer", ["train.py has no 'lodaer'", "its loaders are loader"]),
        ("train:number", ["train:number is an int, not a DataLoader"]),
        ("train.py:needs", ["needs arguments"]),
        ("train.py:nothing", ["train.py:nothing gives a NoneType, not a DataLoader"]),
        ("train.py:Rows", ["is a", "not a DataLoader"]),
        ("quits.py:loader", ["ended the program (3)", "__main__"]),
        (".train:loader", ["'.train' is neither the name of a module"]),
    ],
)
@pytest.mark.parametrize("command", [["bench"], ["preview", "-o", "sheet.png"]])
def test_a_wrong_name_is_one_line_and_exit_code_2(capsys, command, target, words):
    assert cli.main([*command, target]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"loaderx {command[0]}: ")
    assert [word for word in words if word not in line] == []
    assert captured.out == ""
    assert not Path("sheet.png").exists()


@pytest.mark.parametrize(
    ("target", "where", "what"),
    [
        ("broken.py:loader", "numbers[5]", "IndexError: list index out of range"),
        ("broken:loader", "numbers[5]", "IndexError: list index out of range"),
        ("hungry:loader", "import a_package", "No module named 'a_package_that_nobody_has'"),
        ("train.py:fails", "raise OSError", "OSError: a mistake of theirs"),
    ],
)
def test_a_mistake_in_the_module_is_shown_where_it_is(capsys, target, where, what):
    assert cli.main(["bench", target]) == 1
    shown = capsys.readouterr().err
    first, file, *_ = shown.splitlines()
    assert first == "Traceback (most recent call last):"
    # The traceback begins in the user's code and not in the library.
    assert target.partition(":")[0].removesuffix(".py") + ".py" in file
    assert where in shown
    assert what in shown


def test_seconds_must_be_above_0(capsys):
    for wrong in ("0", "-1", "soon", "nan", "inf"):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["bench", "train.py:loader", f"--seconds={wrong}"])
        assert stopped.value.code == 2
        assert f"{wrong!r} is not a number of seconds above 0" in capsys.readouterr().err


# The sentence, from made-up numbers.


def report(reached=0.1, **seconds):
    kinds = {
        "order": Stage("order", "order", "", 0.0),
        "photos": Stage("fetch", "fetch image", "compiled", 0.0, "NPDataset", "what helps"),
        "blur": Stage("op", "image: GaussianBlur", "compiled", 0.0, "GaussianBlur"),
        "decode": Stage("op", "image: decode, CenterCrop", "decoder", 0.0, "decode", "what helps"),
        "crop_0": Stage("op", "image_0: RandomCrop", "compiled", 0.0, "RandomCrop"),
        "crop_1": Stage("op", "image_1: RandomCrop", "compiled", 0.0, "RandomCrop"),
        "theirs": Stage("op", "image: invert", "Python", 0.0, "invert", "what helps"),
        "hook": Stage("hook", "scale (each batch)", "Python", 0.0),
        "hand_off": Stage("hand-off", "hand-off", "", 0.0),
        "waiting": Stage("waiting", "waiting", "", 0.0),
    }
    stages = [
        dataclasses.replace(known, seconds=seconds[name] * 1e-6)
        for name, known in kinds.items()
        if name in seconds
    ]
    limit = Limit(100, 400, 2, 1e10, 2e7, reached)
    return Report({"image": "uint8[4]"}, 10, 2, 2, 2, 0.1, 1.0, 100, 200, stages, limit)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            report(blur=52, crop_0=29, photos=19),
            "the transforms take 81 %: GaussianBlur alone 52 %.",
        ),
        (
            report(blur=40, crop_0=30, crop_1=30),
            "the transforms take 100 %: RandomCrop alone 60 %.",
        ),
        (report(decode=60, blur=40), "the transforms take 100 %: decode alone 60 %; what helps."),
        (report(blur=80, photos=20), "the transforms take 80 %: all of it GaussianBlur."),
        (
            report(theirs=30, blur=70),
            "a Python function runs per sample: invert takes 30 %; what helps.",
        ),
        (
            report(theirs=30, photos=10, waiting=60),
            "a Python function runs per sample: invert takes 30 %; what helps; threads wait 60 % of the time.",
        ),
        (
            report(photos=70, blur=30),
            "the source takes most: NPDataset, fetch image 70 %; what helps.",
        ),
        (
            report(reached=0.75, photos=60, blur=40),
            "the loader is not the limit: it is at 75 % of what this machine does if it only copies.",
        ),
        (
            report(hook=60, photos=40),
            (
                "the function of each batch takes 60 %: its work per sample belongs into `transforms`, where it is "
                "compiled."
            ),
        ),
        (
            report(order=30, hand_off=30, photos=40),
            "the fixed cost of every batch takes 60 %: larger batches are faster.",
        ),
        (
            report(order=30, hook=40, photos=30),
            "no stage dominates: scale (each batch) 40 % and order 30 %.",
        ),
        (
            report(blur=40, photos=20, waiting=40),
            "the transforms take 40 %: all of it GaussianBlur; threads wait 40 % of the time.",
        ),
        (
            report(blur=40, waiting=60),
            (
                "threads wait 60 % of the time: for each other, if batches are small or few, for Python, or for cores "
                "that other programs use."
            ),
        ),
    ],
)
def test_the_advice_names_what_takes_most(given, sentence):
    assert advice(given) == sentence
    assert lines("train.py:loader", given)[-1] == f"advice: {sentence}"


# Names and hints, from real loaders.

NAMED = """
import functools
import numpy as np
import scipy.ndimage
import loaderx as lx
from PIL import Image, ImageFilter
from loaderx import transforms as T

rows = np.zeros((20, 16, 16, 3), np.uint8)


def blurred(x):
    return np.asarray(Image.fromarray(x).filter(ImageFilter.GaussianBlur(2)))


def zoomed(x, by=1):
    return scipy.ndimage.zoom(x, by)


def through_another(x):
    return zoomed(x)


def inside(x):
    import PIL.ImageOps
    return np.asarray(PIL.ImageOps.mirror(Image.fromarray(x)))


class Halved:
    def __call__(self, x):
        return x // np.uint8(2)


class Rows:
    def __len__(self):
        return 20

    def __getitem__(self, row):
        return {"image": rows[row], "label": np.int32(row)}


def loader_of(data, *ops):
    transforms = {"image": list(ops)} if ops else None
    return lx.DataLoader(data, batch_size=4, transforms=transforms, output="numpy")


def folder():
    return loader_of(lx.ImageFolder("photos", (10, 20)))


def part_of_folder():
    return loader_of(lx.ImageFolder("photos", (10, 20)).split(0.5)[0])


def theirs():
    return loader_of(Rows())


def records():
    return loader_of({"image": lx.ARDataset("x.ar")})


def combined():
    chosen = T.OneOf(T.RandomFlip(), [T.Invert(), T.Solarize(0.5)])
    return loader_of({"image": rows}, T.Maybe(0.5, T.GaussianBlur(1.0)), chosen)


def python():
    partial = functools.partial(zoomed, by=1)
    return loader_of({"image": rows}, blurred, through_another, inside, partial, Halved(), lambda x: x)
"""


@pytest.fixture
def named(folder, monkeypatch):
    for name in ("a", "b"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (20, 10)).save(folder / "photos" / name / f"{number}.png")
    write_array_record("x.ar", np.zeros((20, 8, 8, 3), np.uint8), progress=False)
    Path("named.py").write_text(NAMED)
    monkeypatch.delitem(sys.modules, "named", raising=False)

    def stages(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = measure(find(f"named.py:{name}"), 0.01).stages
        return {stage.name: stage for stage in found if stage.kind in ("fetch", "op")}

    return stages


@pytest.mark.parametrize(
    ("loader", "stage", "what", "helps"),
    [
        ("folder", "fetch image", "ImageFolder", "`loaderx convert FOLDER train.npy --size 10 20`"),
        ("part_of_folder", "fetch image", "ImageFolder", "`loaderx convert FOLDER train.npy"),
        (
            "theirs",
            "fetch image, label",
            "Rows",
            "`lx.write_array_record(\"image.ar\", (rows[i]['image'] for i in range(len(rows))))`",
        ),
        ("records", "fetch image", "ARDataset", "`loaderx convert FILE train.npy`"),
        ("combined", "fetch image", "NPDataset", "uncompressed rows are the fastest"),
    ],
)
def test_a_source_is_named_as_the_user_wrote_it_with_what_helps(named, loader, stage, what, helps):
    found = named(loader)[stage]
    assert found.what == what
    assert helps in found.hint


def test_ops_inside_of_combinators_are_named(named):
    names = [name for name in named("combined") if not name.startswith("fetch")]
    assert names == [
        "image: Maybe(GaussianBlur)",
        "image: OneOf(RandomFlip, Invert, Solarize)",
    ]


def test_only_python_code_that_can_be_compiled_is_told_to_be(named):
    hints = {name: stage.hint for name, stage in named("python").items() if "fetch" not in name}
    for name in ("Halved", "<lambda>"):
        assert "decorate it with `@loaderx.transform`" in hints.pop(f"image: {name}")
    pillow, scipy = "it calls PIL, which cannot be compiled; ", "it calls scipy, which cannot"
    assert hints["image: blurred"].startswith(f"{pillow}T.GaussianBlur of ")
    assert hints["image: inside"].startswith(f"{pillow}T.RandomFlip of ")
    assert hints["image: through_another"].startswith(scipy)
    assert hints["image: zoomed"].startswith(scipy)
    assert len(hints) == 4


def test_every_op_that_is_named_in_the_place_of_another_exists():
    assert [op for op in EQUIVALENTS.values() if not hasattr(transforms, op)] == []


def test_boxes_next_to_images_are_measured(tmp_path):
    """Those of files of any sizes move through the windows of these; other ops are drawn by them."""
    for row in range(8):
        Image.fromarray(np.full((30 + row, 40, 3), row, np.uint8)).save(tmp_path / f"{row}.png")
    boxes = np.tile(np.array([5, 5, 20, 20], np.float32), (8, 2, 1))
    for images in (EncodedFiles(tmp_path), np.zeros((8, 30, 40, 3), np.uint8)):
        loader = DataLoader(
            {"image": images, "boxes": boxes},
            batch_size=4,
            transforms={("image", "boxes"): [transforms.Resize(24), transforms.RandomIoUCrop(16)]},
            output="numpy",
        )
        names = [stage.name for stage in measure(loader, 0.05).stages]
        assert "boxes: RandomIoUCrop" in names
        assert "boxes: Resize" in names


def test_times_have_a_unit_that_people_can_read():
    shown = {2.5e-9: "2 ns", 1e-6: "1 us", 0.0123: "12.3 ms", 1.5: "1.5 s", 4000.0: "4,000 s"}
    assert {value: readable_seconds(value) for value in shown} == shown
