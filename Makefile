# The commands of this repository; `make` alone lists them.
# They need make and a Python, nothing else. uv is used when it is there, because it is quicker.

PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
LOCK := infra/requirements.lock
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test trials lint lock experiments bench clean

# Of `make experiments`: where records are kept (an interrupted study goes on there), how large the studies are, and a
# seed that nothing was tuned on.
STUDIES ?= .ew/studies
INSTANCES ?= 60
SEED ?= 90417

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: $(INSTALLED) ## create .venv with the locked requirements; instant when it is up to date
	@:

run: setup ## set up, then show the whole story on simulated data (ew demo)
	@$(BIN)/ew demo

# One worker more than the two cores of a small machine: tests of servers and killed processes mostly wait.
test: setup ## set up, then run all tests
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

# Before a release: failures at every step, long runs and studies, of which `make test` has one small case each.
trials: setup ## set up, then run the tests that need minutes (infra/docs/tests.md)
	$(BIN)/pytest tests/trials -n 3 --dist loadfile --no-loadscope-reorder

lint: setup ## set up, then check style (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lock: ## resolve the requirements of pyproject.toml again (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --no-emit-index-url --generate-hashes --no-header --no-annotate -o $(LOCK)

# SALES, if given, is a table of real weekly sales for the paper's second table.
experiments: setup ## run the paper's experiments, an hour or two, and write infra/docs/experiments.md
	$(BIN)/ew reproduce table1 --instances $(INSTANCES) --seed $(SEED) --out $(STUDIES)
	$(BIN)/ew reproduce auc --instances $(INSTANCES) --seed $(SEED) --out $(STUDIES)
	$(BIN)/ew reproduce limits --instances $(INSTANCES) --seed $(SEED) --out $(STUDIES)
	$(BIN)/ew reproduce regret --instances 5 --seed $(SEED) --out $(STUDIES)
	$(if $(SALES),$(BIN)/ew reproduce table2 --sales $(SALES) --seed $(SEED) --out $(STUDIES))
	$(BIN)/ew reproduce page --out $(STUDIES)

# Eight minutes on two quick and idle cores, and 6 GB. Peers that are not installed are left out: pip install 'ew-pipeline[bench]'.
bench: setup ## run the benchmarks and write their tables and the growth into infra/docs/speed.md
	@mkdir -p $(STUDIES)
	$(BIN)/ew bench --observed 1e7 --rows 70000 --cols 10000 --json > $(STUDIES)/fits.json
	$(BIN)/ew bench pipeline --rows 1e5,1e6,1e7 --json > $(STUDIES)/pipeline.json
	$(BIN)/ew bench page $(STUDIES)/fits.json $(STUDIES)/pipeline.json --into infra/docs/speed.md --picture infra/docs/scale-growth.svg

clean: ## remove caches and build output; .venv and .ew stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# The stamp is older than pyproject.toml or the lock exactly when something has to be installed. The lock names every
# package, so nothing is resolved here: pip before 23.3 would take a newer version of a package that is asked for with
# an extra (sqlalchemy[asyncio]) than the lock's, and stop since that one has no hash.
$(INSTALLED): pyproject.toml $(LOCK) | $(BIN)/python
	@set -e; \
	if uv --version >/dev/null 2>&1; then \
	  install="uv pip install --quiet --python $(BIN)/python"; \
	else \
	  echo "Installing with pip, which takes a few minutes the first time."; \
	  $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
	  install="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; \
	fi; \
	$$install --no-deps --require-hashes -r $(LOCK); \
	$$install --no-deps --no-build-isolation -e .
	@touch $@

# A virtual environment of the first Python that is new enough; one that exists is kept.
$(BIN)/python:
	@set -e; \
	for python in "$(PYTHON)" python3.13 python3.12 python3.11 python3.14 none; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then break; fi; \
	done; \
	if [ "$$python" = none ]; then \
	  echo "No Python 3.11 or newer: $(PYTHON) is $$("$(PYTHON)" --version 2>&1 || true)." >&2; \
	  echo "Next: install one, then: make setup PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	if uv --version >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python "$$(command -v "$$python")" $(VENV); \
	elif ! "$$python" -m venv $(VENV); then \
	  rm -rf $(VENV); \
	  echo "Next: install the venv module of $$python (on Debian: apt install python3-venv) or uv." >&2; \
	  exit 1; \
	fi
