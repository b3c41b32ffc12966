# Everything that is done with this repository, by name: `make help`.
# PYTHON= chooses the interpreter; each has an environment of its own (.venv, .venv-3.13, ...).
# COMPILED=1 compiles the modules that requests go through, which takes some minutes after each change of a source.

PYTHON ?= python3
VENV := .venv$(patsubst python%,-%,$(filter-out python3 python,$(notdir $(PYTHON))))
PORT ?= 9092
DATA ?= ./data
API ?= list_offsets
V ?= 7
ARGS ?=

BIN := $(VENV)/bin
export COMPILED
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help setup setup-pipeline setup-test run test test-all fault soak mutants check fmt fuzz bench profile docs docs-site lock release clean

help: ## Say what can be done
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
		printf '  make %-15s %s\n' "$$name" "$$what"; done

setup: ## Make the environment in .venv, or renew it where something changed (PYTHON=python3.13; COMPILED=1: faster requests)
	@scripts/setup $(VENV) $(PYTHON)

setup-pipeline: ## Put what the pipeline on Spark needs into .venv too (Spark itself; it needs Java 17 or newer)
	@scripts/setup $(VENV) $(PYTHON) pipeline

setup-test:
	@scripts/setup $(VENV) $(PYTHON) test

run: setup ## Start the broker until Ctrl-C (PORT=9092, DATA=./data)
	@exec $(BIN)/python scripts/foreground.py $(BIN)/tidelog serve --data-dir '$(DATA)' --port '$(PORT)'

test: setup-test ## Run the tests (ARGS='-k retention' for some)
	@exec $(BIN)/python -m pytest -n 4 $(ARGS)

test-all: setup-test ## Run the tests, and those that take long (ARGS='-k neighbours' for some)
	@exec $(BIN)/python -m pytest -n 4 -m '' $(ARGS)

fault: setup-test ## Crash the storage in 100,000 ways, some minutes (SEED=1; STATE=name meets one again; ARGS=--help)
	@PYTHONPATH=. exec $(BIN)/python -m tests.fault.crash.enumerate $(if $(SEED),--seed '$(SEED)') \
		$(if $(STATE),--state '$(STATE)') $(ARGS)

soak: setup-test ## kill -9 a broker under load, again and again, an hour at most (ROUNDS=1000 SEED=1; ARGS=--help)
	@PYTHONPATH=. exec $(BIN)/python -m tests.fault.soak $(if $(ROUNDS),--rounds '$(ROUNDS)') \
		$(if $(SEED),--seed '$(SEED)') $(ARGS)

mutants: setup-test ## Break a file on purpose, and list what no test notices (FILE=storage/log.py TESTS=tests/unit/storage)
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/mutants.txt
	@exec scripts/mutants $(VENV) '$(FILE)' $(TESTS)

# Compiled modules have no docstrings, which docs.py reads.
check: setup-test ## Check format, lint, types, imports, generated docs, and prose
	@$(BIN)/ruff format --check --quiet --output-format concise . || { echo 'check: not formatted: make fmt'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@report=$$($(BIN)/lint-imports) || { echo "$$report"; exit 1; }
	@TIDELOG_COMPILED=0 $(BIN)/python scripts/docs.py --check
	@$(BIN)/python scripts/prose.py

fmt: setup-test ## Format the code, and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

fuzz: setup-test ## Send mangled frames to a broker until Ctrl-C (SEED= repeats; ARGS='--replay FILE')
	@exec $(BIN)/python -m tests.fuzz $(if $(SEED),--seed '$(SEED)') $(ARGS)

bench: setup-test ## Measure beside Apache Kafka, an hour or more (QUICK=1: two minutes; ROW=name; COMPARE=commit; ARGS=--list)
	@exec $(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(ROW),--row '$(ROW)') $(if $(COMPARE),--compare '$(COMPARE)') $(ARGS)

profile: setup-test ## Draw a flame graph of the broker under a row of the bench (ROW=one-record-10x5)
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/profile.txt
	@exec $(BIN)/python -m bench.profile --row '$(or $(ROW),one-record-10x5)' $(ARGS)

docs: setup ## Generate docs/config.md, protocol.md, compatibility.md and metrics.md
	@TIDELOG_COMPILED=0 $(BIN)/python scripts/docs.py

docs-site: setup ## Build the documentation site in build/site
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

lock: setup-test ## Lock the newest dependencies, each with its hashes
	@$(LOCK) --upgrade pyproject.toml -o requirements/run.txt
	@$(LOCK) --upgrade --group build -c requirements/run.txt -o requirements/build.txt
	@$(LOCK) --upgrade pyproject.toml --extra pipeline -c requirements/run.txt -c requirements/build.txt \
		-o requirements/pipeline.txt
	@$(LOCK) --upgrade --group test -c requirements/pipeline.txt -o requirements/test.txt
	@$(LOCK) --upgrade --group native -c requirements/test.txt -o requirements/native.txt
	@$(LOCK) --upgrade --group profile -o requirements/profile.txt
	@$(LOCK) --upgrade --group mutants -o requirements/mutants.txt
	@$(LOCK) --upgrade --group docs -c requirements/test.txt -o requirements/docs.txt

release: ## Build and verify an sdist and wheels, commit and tag; never push (VERSION=1.2.3)
	@$(PYTHON) scripts/release.py '$(VERSION)'

clean: ## Remove what was made: environments, builds, caches; never data
	@rm -rf .venv .venv-* build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@rm -f protocol/*/*.c protocol/*/*.so
