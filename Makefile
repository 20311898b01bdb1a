# Needs only python3 (3.11 or newer) and make. `make` lists the targets.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=
FUZZ ?= 20
BIN := $(VENV)/bin
SHELL := /bin/sh
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start many processes, which would otherwise all compile the same modules; `make clean` removes the files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test faults fuzz lint format docs bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Install periplus into .venv
	@echo "periplus is in $(VENV): try $(BIN)/periplus --help"

demo: $(VENV)/.installed-demo ## Generate a small archive, index it, query it, read it and draw a picture (about two minutes)
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-test ## Run the tests; ARGS="-k tiff" passes options to pytest
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

faults: $(VENV)/.installed-test ## Make every system call of every writer fail in turn (about an hour); ARGS="-k flat" selects
	@PERIPLUS_FAULTS=all $(BIN)/python -m pytest -q tests/acceptance/test_faults.py tests/acceptance/test_faults_remote.py $(ARGS)

fuzz: $(VENV)/.installed-test ## Try twenty times as many mutants, examples and interruptions (FUZZ=100: a hundred times)
	@PERIPLUS_FUZZ=$(FUZZ) $(BIN)/python -m pytest -q -n $(WORKERS) -m "fuzz or hypothesis" $(ARGS)

# mypy reads the types of the libraries, so they must be installed.
lint: $(VENV)/.installed-test $(VENV)/.installed-lint ## Check style, types and which package imports which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed-lint ## Sort imports and format the code
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

docs: $(VENV)/.installed ## Write the generated parts of README.md and docs/ again
	@$(BIN)/python docs/generate.py

bench: $(VENV)/.installed-bench ## Measure against other libraries and write docs/bench.md
	@$(BIN)/python -m bench $(ARGS)

clean: ## Remove everything that make created
	rm -rf $(VENV) demo-output build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment: created once; dependencies are installed again when pyproject.toml changes -----------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "periplus needs Python 3.11 or newer; this is `$(PYTHON) --version 2>&1`."; \
	    echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "This Python has no venv module. On Debian or Ubuntu: sudo apt install python3-venv."; \
	    echo "Or name another Python: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade pip || echo "pip was not upgraded"
	@$(BIN)/python -m pip install -qq uv || echo "uv is not available; using pip, which is slower"
	@touch $@

# uv is several times faster; where it is not available or cannot use pip's configuration, pip installs.
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
