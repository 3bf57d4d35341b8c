# Every command sets up what it needs first; a second call costs a fraction of a second.
# Needs Python 3.11 or newer with venv; the tests and benchmarks also need Java and Maven (for a real Kafka).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
TOOLS_VENV := .venv-tools
DOCS_VENV := .venv-docs
DEMO_VENV := .venv-demo
BIN := $(VENV)/bin
# The demo runs in .venv where `make setup` has made it, with Spark. Otherwise it makes a small environment without Spark.
DEMO_READY := $(if $(wildcard $(VENV)/.ready),$(VENV)/.ready,$(DEMO_VENV)/.ready)
PYTEST_ARGS ?=
BENCH_PYTHONS ?=
export BENCH_PYTHONS
BENCH_ARGS ?=
FAULTS_ARGS ?=

# Read by the demo itself; set on the command line or in the environment: make demo DEMO_SECONDS=60
ifdef DEMO_SECONDS
export DEMO_SECONDS
endif
ifdef DEMO_BOOTSTRAP
export DEMO_BOOTSTRAP
endif

PIP_FLAGS := --quiet --disable-pip-version-check --retries 5
# What constraints.txt has no hash of is not installed, and neither is what a package asks for beyond it.
PIP_LOCKED := $(PIP_FLAGS) --require-hashes --no-deps

SITES ?= build/sites

SEEDS ?= 20000
MINUTES ?= 10
HOURS ?= 1
KILLS ?= 1000
DIST ?= dist
SBOM_LOCK ?= deploy/requirements.txt
FAST := not kafka and not prometheus and not postgres and not redis and not spark and not release \
    and not long_faults
# Those that need servers. What is in ALONE times them, or needs a core for itself. It runs in two processes, one for the
# tests of Spark, which compute, and one for all others, which mostly wait. Each runs its tests in order: Spark's Java
# process keeps the jars that the first test asked for.
REAL := not ($(FAST)) and not long_faults
SPARK_ALONE := broker_away cluster connect connect_ranges engine failures runner session
ALONE := tests/faults tests/examples tests/broker/hazards tests/cli tests/harness tests/release tests/test_docs.py \
    $(SPARK_ALONE:%=tests/spark/test_%.py)

.PHONY: help setup demo docs docs-serve docs-pictures test test-aiokafka test-fast faults soak chaos simulate mutants fuzz check lint format types bench bench-check bench-growth bench-micro bench-peers bench-plots bench-rebalance bench-spark constraints audit dist sbom clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make .venv with all extras and the development tools, at the pinned versions
	@:

$(VENV)/.ready: pyproject.toml constraints.txt scripts/find-python.sh scripts/lock-of.sh
	@[[ -x $(BIN)/python ]] && $(BIN)/python -m pip --version >/dev/null 2>&1 \
	    || { python="$$(scripts/find-python.sh)"; echo "making $(VENV) with $$python"; "$$python" -m venv --clear $(VENV); }
	@echo "installing into $(VENV) (a few minutes the first time: PySpark is 400 MB)"
	@lock="$$(mktemp)"; trap 'rm -f "$$lock"' EXIT; scripts/lock-of.sh pip setuptools > "$$lock"; \
	    $(BIN)/python -m pip install $(PIP_LOCKED) --requirement "$$lock"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install $(PIP_LOCKED) --no-build-isolation --requirement constraints.txt
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check --quiet
	@touch $@

demo: $(DEMO_READY) ## Run the whole thing on an embedded broker for 30 s (DEMO_SECONDS=..., DEMO_BOOTSTRAP=host:port)
	@$(dir $(DEMO_READY))bin/python -m reactive_kafka demo

$(DEMO_VENV)/.ready: scripts/demo.txt scripts/find-python.sh
	@python="$$(scripts/find-python.sh)"; echo "making $(DEMO_VENV) with $$python"; "$$python" -m venv --clear $(DEMO_VENV)
	@$(DEMO_VENV)/bin/python -m pip install $(PIP_LOCKED) --requirement scripts/demo.txt
	@touch $@

test: setup ## Run every test: real Kafka, Prometheus, PostgreSQL, Redis and Spark are fetched and started by the tests (PYTEST_ARGS=...)
ifeq ($(PYTEST_ARGS),)
	@# Most tests wait, so more run at a time than there are cores.
	@$(BIN)/python -m pytest -n 4 -m '$(FAST)'
	@$(BIN)/python -m pytest -n 3 --dist loadfile -m '$(REAL)' $(addprefix --ignore=,$(ALONE))
	@log="$$(mktemp)"; trap 'rm -f "$$log"' EXIT; \
	    $(BIN)/python -m pytest -m '($(REAL)) and spark' $(ALONE) > "$$log" 2>&1 & spark=$$!; \
	    others=0; $(BIN)/python -m pytest -m '($(REAL)) and not spark' $(ALONE) || others=$$?; \
	    of_spark=0; wait $$spark || of_spark=$$?; \
	    cat "$$log"; ((others == 0 && of_spark == 0))
else
	@$(BIN)/python -m pytest $(PYTEST_ARGS)
endif

AIOKAFKA ?= 0.15.0rc1
test-aiokafka: setup ## Run the tests of the Kafka client with another version of aiokafka (AIOKAFKA=0.15.0rc1)
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .cache/aiokafka-$(AIOKAFKA) aiokafka==$(AIOKAFKA)
	@PYTHONPATH=.cache/aiokafka-$(AIOKAFKA) $(BIN)/python -m pytest -m 'not long_faults' tests/broker $(PYTEST_ARGS)

test-fast: setup ## Run the tests that need no Kafka, no Prometheus, no database and no Spark
	@$(BIN)/python -m pytest -n 2 -m '$(FAST)' $(PYTEST_ARGS)

faults: setup ## Play the long faults: networks cut, nodes frozen, killed and restarted (an hour and a half; FAULTS_ARGS='-k B4')
	@$(BIN)/python -m pytest -m long_faults -s $(FAULTS_ARGS)

soak: setup ## Load and random faults on three nodes for hours, judged at the end (HOURS=1, SOAK_ARGS='--seed 5 --write FILE')
	@$(BIN)/python -m tests.faults.soak --hours $(HOURS) $(SOAK_ARGS)

chaos: setup ## Kill members by the thousand under load, judged at the end (KILLS=1000, CHAOS_ARGS='--records 1000000')
	@$(BIN)/python -m tests.faults.chaos --kills $(KILLS) $(CHAOS_ARGS)

simulate: setup ## Play seeded runs of whole applications under faults (SEEDS=20000; one again: SEED=123)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(SIMULATE_ARGS)

mutants: setup ## Break each rule once, and see the simulation or the tests notice (MUTANTS_ARGS=...)
	@$(BIN)/python -m tests.simulation.mutants $(MUTANTS_ARGS)

fuzz: setup ## Feed every input from outside with noise (MINUTES=10; one again: FUZZ_ARGS='--target http --seed 123')
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(FUZZ_ARGS)

check: lint types test ## Run what CI runs: lint, types, every test

lint: setup ## Check style and format with ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup ## Rewrite the code in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## Check types with mypy, strict
	@$(BIN)/mypy
	@$(BIN)/mypy benchmarks examples/demo examples/inventory examples/notices examples/payments/payments examples/bookshop/bookshop $(wildcard tests/typing)

bench: setup $(TOOLS_VENV)/.ready ## Measure us beside our peers on a real Kafka, on each Python (BENCH_PYTHONS="python3.12 ...", BENCH_ARGS=...)
	@pythons="$$(scripts/bench-pythons.sh $(TOOLS_VENV)/bin/uv)"; $(BIN)/python -m benchmarks --python $$pythons $(BENCH_ARGS)

bench-check: setup $(TOOLS_VENV)/.ready ## The same, and fail if a performance goal is missed
	@pythons="$$(scripts/bench-pythons.sh $(TOOLS_VENV)/bin/uv)"; $(BIN)/python -m benchmarks --python $$pythons --check $(BENCH_ARGS)

bench-spark: setup ## Measure Spark channels beside Spark by hand and Structured Streaming (BENCH_ARGS=--check fails if a goal is missed)
	@$(BIN)/python -m benchmarks.spark $(BENCH_ARGS)

bench-growth: setup ## Measure how costs grow, and print what 10,000 partitions, 100 members, 1,000 channels would cost
	@$(BIN)/python -m benchmarks.growth $(BENCH_ARGS)

bench-peers: setup ## Measure us beside peers of Python and the JVM, and kill members of each: 15 minutes (BENCH_ARGS=--resume goes on)
	@$(BIN)/python -m benchmarks.peers $(BENCH_ARGS)

bench-rebalance: setup ## Restart each member of a group under load, ours and peers: a table of pauses, 20 minutes (BENCH_ARGS="--only ours")
	@$(BIN)/python -m benchmarks.rebalances $(BENCH_ARGS)

bench-micro: setup ## Measure single parts of the package without a broker
	@$(BIN)/python -m benchmarks.micro

bench-plots: setup ## Measure and draw what docs/performance.md shows, 10 minutes (BENCH_ARGS='--only keys', BENCH_ARGS=--draw)
	@$(BIN)/python -m benchmarks.plots $(BENCH_ARGS)

docs: $(DOCS_VENV)/.ready ## Build the documentation as a site in build/site; a warning fails
	@$(DOCS_VENV)/bin/python -m docs_tools.stage
	@$(DOCS_VENV)/bin/python -m zensical build --strict --clean --config-file build/mkdocs.yml

docs-serve: $(DOCS_VENV)/.ready ## Show the site at http://localhost:8000/reactive-kafka/ and follow changes of the pages
	@$(DOCS_VENV)/bin/python -m docs_tools.serve

.PHONY: docs-version
docs-version: $(DOCS_VENV)/.ready ## Build the site of one version into SITES, beside the others (VERSION=0.1 SITES=build/sites)
	@MIKE_DOCS_VERSION=$(VERSION) $(MAKE) --no-print-directory docs
	@$(DOCS_VENV)/bin/python -m docs_tools.versions $(VERSION) $(SITES)

docs-pictures: $(DOCS_VENV)/.ready setup ## Draw docs/pictures again, and take docs/screenshots of the live page with Chromium: two minutes
	@$(DOCS_VENV)/bin/python -m docs_tools.pictures
	@$(BIN)/python -m tests.http.page_screenshots

constraints: $(TOOLS_VENV)/.ready ## Write the locks (versions and hashes) anew for pyproject.toml (LOCK_ARGS=--upgrade takes the newest versions)
	@scripts/update-constraints.sh $(TOOLS_VENV)/bin/uv $(LOCK_ARGS)

audit: $(TOOLS_VENV)/.ready ## Look for known advisories against the versions of the lock; fails where they cannot be had
	@scripts/audit.sh $(TOOLS_VENV)/bin/pip-audit

$(DOCS_VENV)/.ready: scripts/docs.txt scripts/find-python.sh
	@python="$$(scripts/find-python.sh)"; "$$python" -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install $(PIP_LOCKED) --requirement scripts/docs.txt
	@touch $@

dist: $(TOOLS_VENV)/.ready ## Build the source distribution and the wheel into dist/, and check them
	@scripts/dist.sh $(TOOLS_VENV)/bin $(DIST)

sbom: $(TOOLS_VENV)/.ready ## List the parts of an installation with [standard] as CycloneDX, into dist/ (SBOM_LOCK=constraints.txt: all)
	@mkdir -p $(DIST)
	@PYTHONWARNINGS=ignore $(TOOLS_VENV)/bin/cyclonedx-py requirements $(SBOM_LOCK) --pyproject pyproject.toml --mc-type library \
	    --output-reproducible --of JSON --output-file $(DIST)/reactive_kafka.cdx.json
	@ls $(DIST)/reactive_kafka.cdx.json

$(TOOLS_VENV)/.ready: scripts/tools.txt scripts/find-python.sh
	@python="$$(scripts/find-python.sh)"; "$$python" -m venv --clear $(TOOLS_VENV)
	@$(TOOLS_VENV)/bin/python -m pip install $(PIP_LOCKED) --requirement scripts/tools.txt
	@touch $@

clean: ## Remove environments, caches and what tests fetched
	rm -rf $(VENV) $(DEMO_VENV) .venv-bench* .venv-peers-* $(TOOLS_VENV) $(DOCS_VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist ./*.egg-info
