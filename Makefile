# Every target does its own set-up: a machine needs Python 3.11 or newer, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/demo-installed
STAMP := $(VENV)/installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: help demo test check compat bench chaos fuzz explore hiccups clean

help:
	@echo "make demo    a question that needs two tools, answered without network or key"
	@echo "make test    install into .venv and run every test"
	@echo "make check   ruff, mypy --strict, import direction"
	@echo "make bench   the benchmarks, as ratios to a hand-written floor"
	@echo "make chaos   ten thousand runs under random faults; RUNS=N for another number"
	@echo "make fuzz    5,000 malformed HTTP responses; RESPONSES=N for another number"
	@echo "make compat  the tests of http, tools and loop; PYTHON=... VENV=... for another Python"
	@echo "make explore the properties, on examples that no run had before"
	@echo "make hiccups the tests, in a process that is stopped again and again"
	@echo "make clean   remove .venv and caches"

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
	@$(PIP) '.[cli,dev]'
	@touch $@ $(DEMO)

# The offline model and the ready tools are named, so that no key, variable or file of settings makes it another demo.
demo: $(DEMO)
	@XDG_CONFIG_HOME=$(CURDIR)/$(VENV) $(BIN)/midspan ask --verbose --model offline --tools ready \
		"What is 17.5% of 2480, and what time is it in Tokyo?" </dev/null

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_imports.py

bench: $(STAMP)
	$(BIN)/python benchmarks/wire.py
	$(BIN)/python benchmarks/tools.py
	$(BIN)/python benchmarks/import.py
	$(BIN)/python benchmarks/emulator.py
	$(BIN)/python benchmarks/hostile.py

RUNS ?= 10000
chaos: $(STAMP)
	$(BIN)/python scripts/chaos.py --runs $(RUNS)

RESPONSES ?= 5000
fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz_http.py --responses $(RESPONSES)

compat: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --quiet tests/http tests/tools tests/loop tests/conformance

explore: $(STAMP)
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=others

hiccups: $(STAMP)
	$(BIN)/python scripts/hiccups.py $(BIN)/python -m pytest

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
