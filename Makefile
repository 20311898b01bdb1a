# The front door: needs python3 (3.11 or newer) and make, nothing else. `make` lists what there is.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=
BIN := $(VENV)/bin
SHELL := /bin/sh
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test faults lint format docs bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Make .venv with periplus in it
	@echo "periplus is in $(VENV): try $(BIN)/periplus --help"

demo: $(VENV)/.installed-demo ## Index a small archive it generates, query it, read it, draw a picture (about two minutes)
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-test ## Run the tests; ARGS="-k tiff" passes options on to pytest
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

faults: $(VENV)/.installed-test ## Let every call of every writer fail in turn (about an hour); ARGS="-k flat" chooses
	@PERIPLUS_FAULTS=all $(BIN)/python -m pytest -q tests/acceptance/test_faults.py tests/acceptance/test_faults_remote.py $(ARGS)

# Types are checked against the libraries themselves, so these must be there.
lint: $(VENV)/.installed-test $(VENV)/.installed-lint ## Check style, types and the arrows between rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed-lint ## Sort imports and lay out the code
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

docs: $(VENV)/.installed ## Write the generated parts of README.md and docs/ anew
	@$(BIN)/python docs/generate.py

bench: $(VENV)/.installed-bench ## Measure against other libraries and write docs/bench.md
	@$(BIN)/python -m bench $(ARGS)

clean: ## Remove everything that make made
	rm -rf $(VENV) demo-output build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment: made once; a set of dependencies is installed again when pyproject.toml changes -----

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "periplus needs Python 3.11 or newer; this is `$(PYTHON) --version 2>&1`."; \
	    echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "This Python has no venv module. On Debian or Ubuntu: sudo apt install python3-venv."; \
	    echo "Or name another Python: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade pip || echo "pip stays as it is"
	@$(BIN)/python -m pip install -qq uv || echo "no uv here; pip will do, more slowly"
	@touch $@

# uv is several times quicker; where it cannot be had or cannot reach what pip is configured to reach, pip does it.
install = if [ -x $(BIN)/uv ] && $(BIN)/uv pip install --quiet --python $(BIN)/python --editable $(1); then :; \
	else $(BIN)/python -m pip install --quiet --editable $(1); fi

$(VENV)/.installed: pyproject.toml | $(VENV)/.made
	@echo "installing periplus"
	@$(call install,".")
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(VENV)/.made
	@echo "installing periplus with what '$*' needs"
	@$(call install,".[$*]")
	@touch $@
