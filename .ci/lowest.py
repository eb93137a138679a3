"""Print the lowest release of every dependency that pyproject.toml allows, as constraints for pip."""

import tomllib
from pathlib import Path

settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
for dependency in settings["project"]["dependencies"]:
    print(dependency.replace(">=", "==", 1))
