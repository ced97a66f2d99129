# Every target installs what it needs. Required: Python 3.11 or newer, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/demo-installed
STAMP := $(VENV)/installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable
# More processes than cores: many tests wait for other processes and servers.
# A process takes tests that follow each other, which share fixtures, and the last ones of a process that is behind.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist worksteal
# Modules are compiled once, not by each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo quick test docs acceptance live-test check compat conformance bench chaos fuzz explore hiccups clean

help:
	@echo "make demo        answer a question with two tools, without a network or a key"
	@echo "make quick       run the fast tests, in less than a minute"
	@echo "make test        run all tests but those of make acceptance, in less than five minutes"
	@echo "make check       run ruff, mypy --strict, pyright, and the tests of imports and public names"
	@echo "make acceptance  run the long suites and tests: recorded data, random faults, malformed HTTP, more examples"
	@echo "make docs        build the documentation as a site in .site, and check its links"
	@echo "make live-test   run the tests against the APIs of providers, with your key"
	@echo "make bench       run the benchmarks, which compare Midspan with a hand-written loop"
	@echo "make chaos       run an agent 10,000 times under random faults; RUNS=N for another number"
	@echo "make fuzz        read 5,000 malformed HTTP responses; RESPONSES=N for another number"
	@echo "make compat      run the tests of http, tools and loop; PYTHON=... VENV=... for another Python"
	@echo "make conformance run the official conformance suite of MCP, which needs npm"
	@echo "make explore     run the property tests with new random examples"
	@echo "make hiccups     run the tests in processes that are paused again and again"
	@echo "make clean       remove .venv and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Midspan needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Creating the virtual environment $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt src/midspan/_version.py | $(BIN)/python
	@echo "Installing Midspan and the packages of its terminal ..."
	@$(PIP) '.[cli]'
	@touch $@

$(STAMP): pyproject.toml constraints.txt src/midspan/_version.py | $(BIN)/python
	@echo "Installing Midspan and the packages of its tests (about a minute) ..."
	@$(PIP) '.[cli,mcp,server,otel,docs,dev]' --quiet
	@touch $@ $(DEMO)

# Model and tools are named, and the settings are elsewhere, so that the demo is the same for everybody.
demo: $(DEMO)
	@XDG_CONFIG_HOME=$(CURDIR)/$(VENV) $(BIN)/midspan ask --verbose --model offline --tools ready \
		"What is 17.5% of 2480, and what time is it in Tokyo?" </dev/null

quick: $(STAMP)
	$(PYTEST) --quiet -m "not slow" --hypothesis-profile=quick

test: $(STAMP)
	$(PYTEST) -m "not acceptance"

acceptance: $(STAMP)
	$(BIN)/python scripts/acceptance.py

# The variable silences an announcement of the theme, which is not a warning about these pages.
docs: $(STAMP)
	$(BIN)/python scripts/reference_pages.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

live-test: $(STAMP)
	@variables=$$($(BIN)/python -c 'from midspan.providers.registry import *; print("" if default_family() else credential_variables())') && \
	if [ -n "$$variables" ]; then echo "Live tests skipped: set $$variables to run them."; else $(BIN)/python -m pytest tests/live; fi

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/typing
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest --quiet tests/test_imports.py tests/test_public_names.py

bench: $(STAMP)
	$(BIN)/python benchmarks/wire.py
	$(BIN)/python benchmarks/tools.py
	$(BIN)/python benchmarks/import.py
	$(BIN)/python benchmarks/emulator.py
	$(BIN)/python benchmarks/mcp_calls.py
	$(BIN)/python benchmarks/hostile.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/workers.py

RUNS ?= 10000
chaos: $(STAMP)
	$(BIN)/python scripts/chaos.py --runs $(RUNS)

RESPONSES ?= 5000
fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz_http.py --responses $(RESPONSES)

compat: $(STAMP)
	$(PYTEST) --quiet tests/http tests/tools tests/loop tests/conformance

conformance: $(STAMP)
	@command -v npm >/dev/null || { echo "make conformance needs npm, which comes with Node.js"; exit 2; }
	npm install --silent --no-fund --no-audit --no-package-lock --prefix $(VENV)/node @modelcontextprotocol/conformance@0.2.0-alpha.12 node@22
	MIDSPAN_NODE_MODULES=$(CURDIR)/$(VENV)/node/node_modules $(BIN)/python scripts/conformance_mcp.py

explore: $(STAMP)
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=explore

hiccups: $(STAMP)
	$(BIN)/python scripts/hiccups.py $(BIN)/python -m pytest

clean:
	rm -rf $(VENV) .site .mypy_cache .ruff_cache .pytest_cache .hypothesis
