"""The same commands run before a commit, in CI and by hand, and all of them exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
RUN = REPOSITORY / ".ci" / "run"
WORKFLOW = REPOSITORY / ".github" / "workflows" / "ci.yml"
HOOKS = REPOSITORY / ".pre-commit-config.yaml"


def targets(text):
    """The targets of `make` in commands, at the beginning of a line or of code in a text."""
    return set(re.findall(r"(?:^|`|entry: )make ([\w-]+)", text, flags=re.MULTILINE))


def steps(job):
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_every_target_that_is_named_exists():
    rules = (REPOSITORY / "Makefile").read_text()
    known = set(re.findall(r"^([\w-]+):(?!=)", rules, flags=re.MULTILINE))
    named = [RUN, HOOKS, *(REPOSITORY / name for name in ("CONTRIBUTING.md", "RELEASING.md"))]
    found = {path.name: targets(path.read_text()) - known for path in named}
    assert not any(found.values()), found
    workflow = yaml.safe_load(WORKFLOW.read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert {*matrix["target"], *(each["target"] for each in matrix["include"])} <= known


def test_the_hosted_ci_runs_what_must_hold_before_a_change_is_accepted():
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    commands = targets("\n".join(map(steps, jobs.values()))) | set(matrix["target"])
    assert targets(RUN.read_text()) <= commands


def test_the_hooks_are_the_checks_of_ci():
    (repository,) = yaml.safe_load(HOOKS.read_text())["repos"]
    # Any other would be fetched from the network.
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    assert all(len(hook["stages"]) == 1 for hook in repository["hooks"])
    entries = {(hook["stages"][0], hook["entry"]) for hook in repository["hooks"]}
    checks = targets(steps(yaml.safe_load(WORKFLOW.read_text())["jobs"]["checks"]))
    later = targets(RUN.read_text()) - checks - {"test-frameworks"}  # an environment of its own
    assert entries == {
        *(("pre-commit", f"make {target}") for target in checks),
        *(("pre-push", f"make {target}") for target in later),
    }


def test_constraints_are_the_lower_bounds():
    finished = subprocess.run(
        [sys.executable, REPOSITORY / ".ci" / "lowest.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = finished.stdout.splitlines()
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert [line.replace("==", ">=", 1) for line in lines] == settings["project"]["dependencies"]
    assert all(re.match(r"[\w-]+==[\d.]+(;|$)", line) for line in lines)
