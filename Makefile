# `make help` lists the targets. Each target installs what it needs, in .venv.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Versions that were tested together. Other Python versions than those listed there still resolve.
CONSTRAINTS := constraints.txt
# Tests wait more than they compute, so there are more processes than cores.
WORKERS ?= 4
# With it, each test process would compile all its imports.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(CONSTRAINTS)
# pip compiles in one process, this in one for each core. Not all that is in packages compiles.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_EXTRA)
# `make test COVERAGE=1` takes longer, and prints the coverage of each wing.
COVERAGE ?=
COV := $(if $(COVERAGE),--cov --cov-report=)

.PHONY: help demo test test-all test-nightly model lint lint-python lint-lua lint-prose bench bench-peers clients docs docs-serve screenshots clean
.DELETE_ON_ERROR:

help:
	@echo "make demo          a Spark pipeline over real flights, each verdict checked (Java 17)"
	@echo "make test          the essentials on one real server, in minutes; needs Python and make"
	@echo "make test-all      everything that CI runs: all servers, Spark, languages, browser, deploy"
	@echo "make test-nightly  also mutants, long histories, a million trees, each benchmark once"
	@echo "make model         every interleaving of the protocol, within bounds, by Spin; needs spin and gcc"
	@echo "make lint          ruff, mypy --strict, luacheck, the English"
	@echo "make bench         figures, side by side"
	@echo "make bench-peers   beside Celery, dramatiq, rq, BullMQ and counters; installs them apart"
	@echo "make clients       put the Lua scripts into the clients of other languages"
	@echo "make docs          the documentation site, in site/, without a network"
	@echo "make docs-serve    the site at http://127.0.0.1:8001, built again when a page changes"
	@echo "make screenshots   the pictures of the dashboard in docs/images; needs chromium"
	@echo "make clean         remove .venv and the output of builds and tests"
	@echo
	@echo "ARGS='tests/trees -k frontier' selects tests, WORKERS=0 runs them in one process,"
	@echo "PYTHON=python3.13 sets .venv up with another Python."

demo: $(VENV)/.demo
	@$(BIN)/acker-redis demo $(ARGS)

# Coverage is of a whole run, so it is omitted when ARGS select tests.
test: $(VENV)/.test
	@$(PYTEST) $(if $(ARGS),,--tier quick $(COV)) $(ARGS)
	@$(if $(ARGS),,$(if $(COVERAGE),$(BIN)/python -m tests.coverage_of_wings))

test-all: $(VENV)/.dev $(VENV)/spark.jsa
	@$(PYTEST) --tier full $(COV) $(ARGS)
	@$(if $(COVERAGE),$(BIN)/python -m tests.coverage_of_wings)

test-nightly: $(VENV)/.dev $(VENV)/spark.jsa
	@$(PYTEST) --tier nightly --timeout 7200 $(ARGS)

# ARGS='--tier nightly' has larger bounds; ARGS='split-rows --trails' shows one counterexample.
model: $(VENV)/.test
	@$(BIN)/python -m proof.model $(ARGS)

lint: lint-python lint-lua lint-prose

lint-python: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

lint-lua: $(VENV)/.dev
	@if command -v luacheck >/dev/null; then $(BIN)/python -m tests.project.luacheck; \
	elif [ "$$CI" = true ]; then echo "luacheck is missing; apt install lua-check" >&2; exit 1; \
	else echo "luacheck skipped: not installed (apt install lua-check)"; fi

lint-prose: $(VENV)/.dev
	@$(BIN)/python -m tests.project.prose

BENCHMARKS := apply blocks producer messages kafka celery_tasks http_requests streams rabbitmq otel latency drain admin spark_jobs spark_kafka spark_demo explain
bench: $(VENV)/.test
	@for name in $(or $(ARGS),$(BENCHMARKS)); do $(BIN)/python benchmarks/$$name.py || exit 1; done

# ARGS=--small has a twentieth of the trees. Without node, BullMQ is skipped.
bench-peers: $(VENV)/.test
	@$(BIN)/python benchmarks/peers/run.py $(ARGS)

# Material warns of MkDocs 2, which the constraints exclude.
docs docs-serve: export NO_MKDOCS_2_WARNING = 1

docs: $(VENV)/.docs
	@$(BIN)/mkdocs build --strict
	@echo "site/index.html"

docs-serve: $(VENV)/.docs
	@$(BIN)/mkdocs serve --dev-addr 127.0.0.1:8001

screenshots: $(VENV)/.dev
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

clients:
	@$(PYTHON) clients/sync_lua.py

clean:
	rm -rf benchmarks/peers/.venv benchmarks/peers/bullmq/node_modules
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis

# .venv keeps the Python that made it; another PYTHON is an error.
ifneq ($(origin PYTHON),file)
ifneq ($(filter-out clean clients help,$(or $(MAKECMDGOALS),help)),)
ifneq ($(wildcard $(BIN)/python),)
version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifneq ($(call version,$(PYTHON)),$(call version,$(BIN)/python))
$(error $(VENV) has Python $(call version,$(BIN)/python): remove it first (make clean))
endif
endif
endif
endif

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python3 -m venv failed; on Debian: apt install python3-venv" >&2; exit 1; }

# An archive of the classes that Spark loads: with it, the JVMs of the tests start in half the time.
$(VENV)/spark.jsa: tests/spark/classes.py $(VENV)/.dev
	@rm -f $@
	@$(BIN)/python -m tests.spark.classes $@ >/dev/null 2>&1 || echo "no archive of Spark classes: tests are slower"

$(VENV)/.demo: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV) (Spark is 450 MB: a minute or two)"
	@$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV) with the dependencies of make test (Spark is 450 MB: a minute or two)"
	@$(INSTALL) -e '.[test]'
	@$(COMPILE)
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV) for the documentation site"
	@$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV) with the dependencies of all tests"
	@$(INSTALL) -e '.[dev]'
	@$(COMPILE)
	@touch $@ $(VENV)/.demo $(VENV)/.test $(VENV)/.docs
