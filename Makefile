# make demo | make test | make lint | make bench: each sets up what it needs, in .venv.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Versions that were tested together; other Pythons than those listed there still resolve.
CONSTRAINTS := constraints.txt
# Tests wait more than they compute: one process each for so many files at a time.
WORKERS ?= 3
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS)

.PHONY: demo test lint bench classes clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	@$(BIN)/acker-redis demo $(ARGS)

test: $(VENV)/.dev classes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

# What a JVM has loaded for Spark; with it those of the tests begin in half the time.
classes: $(VENV)/spark.jsa

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@if command -v luacheck >/dev/null; then luacheck --quiet lua acker_redis/fake_lua; \
	elif [ "$$CI" = true ]; then echo "luacheck is missing; apt install lua-check" >&2; exit 1; \
	else echo "luacheck skipped: not installed (apt install lua-check)"; fi

bench: $(VENV)/.demo
	@$(BIN)/python benchmarks/apply.py $(ARGS)
	@$(BIN)/python benchmarks/parts.py
	@$(BIN)/python benchmarks/blocks.py
	@$(BIN)/python benchmarks/columns.py
	@$(BIN)/python benchmarks/producer.py
	@$(BIN)/python benchmarks/frontier.py
	@$(BIN)/python benchmarks/latency.py
	@$(BIN)/python benchmarks/drain.py
	@$(BIN)/python benchmarks/admin.py
	@$(BIN)/python benchmarks/events.py
	@$(BIN)/python benchmarks/spark.py
	@$(BIN)/python benchmarks/spark_demo.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python3 -m venv failed; on Debian: apt install python3-venv" >&2; exit 1; }

$(VENV)/spark.jsa: tests/spark_classes.py $(VENV)/.dev
	@rm -f $@
	@$(BIN)/python -m tests.spark_classes $@ >/dev/null 2>&1 || echo "no archive of Spark's classes: tests are slower"

$(VENV)/.demo: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV) (Spark is 450 MB: a minute or two)"
	@$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV) with what the tests need"
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.demo
