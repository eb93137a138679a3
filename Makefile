# The commands of this project; `make help` lists them. Everything is installed into .venv, once.

VENV := .venv
BIN := $(VENV)/bin
# PyTorch is large, and not needed for anything else.
FRAMEWORKS := .venv-frameworks
# So are torchvision, which needs a release of PyTorch of its own, and Albumentations.
ORACLES := .venv-oracles
# The lowest releases of numba, jax and NumPy that pyproject.toml allows.
LOWEST := .venv-lowest
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input

# How many processes share the tests. Each gets whole files, so that their ops are compiled once, but for the folders
# that tests/conftest.py names. Files are in the order of their names, by which those with long single tests (of
# distributed programs, examples) are not the last.
PROCESSES := 4

# The interpreter .venv is made with: `make demo PYTHON=/path/to/python`. Without one, the first of these that is
# new enough is taken, since on many systems python3 itself is older.
CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-lowest test-frameworks test-oracles soak lint types docs bench gallery clean

help:
	@echo "make demo       train a small Flax model on the digits data set and report accuracy and speed"
	@echo "make test       run the tests"
	@echo "make test-long  run the tests that take long, too"
	@echo "make test-lowest  run the tests with the lowest releases of all dependencies, in an environment of its own"
	@echo "make test-frameworks  run the tests with PyTorch, in an environment of its own"
	@echo "make test-oracles  compare ops with torchvision and Albumentations, in an environment of its own"
	@echo "make soak       try random configurations, exits, kills, forks and signals for half an hour"
	@echo "make lint       check style, formatting and the direction of imports"
	@echo "make types      check types with mypy --strict"
	@echo "make docs       build the documentation site into site/; a broken link or reference is an error"
	@echo "make bench      measure against other loaders, which it installs; writes tables and charts"
	@echo "make gallery    draw what every op does to a photograph and to sound, in docs/pictures"
	@echo "make clean      remove .venv and everything else that was generated"

demo: $(VENV)/.installed-examples
	$(BIN)/python -m loaderx demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder

test-long: $(VENV)/.installed-test
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder -m "long or not long"

test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder

test-frameworks: $(FRAMEWORKS)/.installed
	$(FRAMEWORKS)/bin/python -m pytest tests/frameworks

test-oracles: $(ORACLES)/.installed
	$(ORACLES)/bin/python -m pytest tests/oracles

soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-test
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@! grep -rlE '<(script|link|img)[^>]+(src|href)="https?:' site --include='*.html' # nothing from the network

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --report

gallery: $(VENV)/.installed-test
	$(BIN)/python examples/gallery.py docs/pictures --signals

clean:
	rm -rf $(VENV) $(LOWEST) $(FRAMEWORKS) $(ORACLES) .peers build dist site *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find . -type d -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# The stamps make a second run free of installing, and so of the network. One is written only after its whole
# part succeeded: an interrupted run starts that part again.
$(VENV)/.created:
	@found=""; \
	for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
	    if "$$candidate" -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then found="$$candidate"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "loaderx needs Python 3.11 or newer, and none of these is: $(or $(PYTHON),$(CANDIDATES))." >&2; \
	    echo "Name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	echo "$$found -m venv --clear $(VENV)"; \
	"$$found" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed-examples: pyproject.toml | $(VENV)/.created
	$(INSTALL) --editable ".[examples]"
	@touch $@

# The extra `test` holds the extras `bench` and `examples`: after `make test` the others have nothing to install.
$(VENV)/.installed-test: pyproject.toml | $(VENV)/.created
	$(INSTALL) --editable ".[test]"
	@touch $(VENV)/.installed-examples $(VENV)/.installed-bench $@

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/.created
	$(INSTALL) --editable ".[bench]"
	@touch $(VENV)/.installed-examples $@

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/.created
	$(INSTALL) --editable ".[docs]"
	@touch $@

$(LOWEST)/.installed: pyproject.toml .ci/lowest.py | $(VENV)/.created
	$(BIN)/python -m venv --clear $(LOWEST)
	$(BIN)/python .ci/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --disable-pip-version-check --no-input --editable ".[test]" --constraint $(LOWEST)/constraints.txt
	@touch $@

$(FRAMEWORKS)/.installed: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m venv --clear $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --disable-pip-version-check --no-input --editable ".[test-frameworks]"
	@touch $@

$(ORACLES)/.installed: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m venv --clear $(ORACLES)
	$(ORACLES)/bin/python -m pip install --disable-pip-version-check --no-input --editable ".[test-oracles]"
	@touch $@
