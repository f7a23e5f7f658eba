# One command a habit; README, CI and CONTRIBUTING call these targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header
CODE := rules cluster webhook controller certs cli tests examples

# Tests start hundreds of programs: what is compiled once is kept, whatever a container wants.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run demo test check format lint types layers fast-tests e2e fix fuzz chaos soak bench \
	bench-webhook bench-controller bench-nodes controlplane rule docs chart kustomize \
	site image image-python sbom lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make the virtual environment from the hash-locked requirements

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; call make PYTHON=python3.13 (or the like)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: setup ## Start the webhook on localhost, send it sample reviews, keep serving
	$(BIN)/python -m examples.demo --keep

demo: setup ## The same, and stop
	$(BIN)/python -m examples.demo

test: setup check image-python site e2e fuzz ## Everything that CI runs

check: setup format lint types layers fast-tests ## Format, lint, types, layers and fast tests

format: setup
	$(BIN)/ruff format --check $(CODE)

lint: setup
	$(BIN)/ruff check $(CODE)
	$(BIN)/hadolint Dockerfile

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

# Measuring coverage makes a test take twice to five times as long: the rules' own tests, run once
# more, have to reach every line; but not the one that judges every rule thousands of times.
fast-tests: setup
	$(BIN)/pytest -n auto -m "not e2e and not slow"
	$(BIN)/pytest -n auto -m "not slow" tests/rules --ignore tests/rules/test_reads.py \
		--cov=rules --cov-report=
	$(BIN)/coverage report --include='rules/*' --fail-under=100 --skip-covered

# More than cores: most of their time these tests wait. For the same reason Go's programs get one
# processor each: on two, an API server that nobody asks takes twice as much of them.
E2E_PROCESSES ?= 5
e2e: setup ## Tests on real API servers, built on first use (E2E_PROCESSES=2 takes less memory)
	$(BIN)/python -m tests.controlplane build
	GOMAXPROCS=1 $(BIN)/pytest -n $(E2E_PROCESSES) --dist loadfile --no-loadscope-reorder -m "e2e or slow"

fix: setup ## Format, and mend what can be mended automatically
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

FUZZ_REQUESTS ?= 200000
fuzz: setup ## Send mutated request bodies to a running webhook (FUZZ_REQUESTS=…)
	$(BIN)/python -m tests.webhook.fuzz --requests $(FUZZ_REQUESTS)

chaos: setup ## 500 evictions while controller and API server are killed and restarted
	$(BIN)/pytest tests/controller/test_e2e_chaos.py

SCHEDULES ?= 10000
soak: setup ## Live through 10,000 random schedules of failures, takeovers and clock jumps (SCHEDULES=…)
	USHER_SCHEDULES=$(SCHEDULES) $(BIN)/pytest -n auto tests/controller/test_schedules.py

bench: bench-webhook bench-controller bench-nodes ## All figures; prints tables

bench-webhook: setup ## The webhook beside one in Go (needs wrk); writes build/bench.json
	$(BIN)/python -m tests.bench

SIZES ?= 250 1000 4000
bench-controller: setup ## The controller beside the reference (SIZES=…); writes build/bench-controller.json
	$(BIN)/python -m tests.controller.bench $(SIZES)

NODES ?= 5000
PODS ?= 150000
bench-nodes: setup ## The planning of node health for large clusters (NODES=…, PODS=…)
	$(BIN)/python -m tests.controller.node_bench --nodes $(NODES) --pods $(PODS)

controlplane: setup ## Run a real API server for yourself (MODE=native|crd|crd-1.34)
	$(BIN)/python -m tests.controlplane up --mode $(or $(MODE),native)

rule: setup ## Start a rule: make rule NAME=my-rule
	$(BIN)/python -m tests.rules.scaffold $(NAME)

docs: setup ## Generate the documents that come from code
	$(BIN)/usher explain -o markdown > docs/rules.md
	$(BIN)/python -m tests.docs.metrics > docs/metrics.md

chart: setup ## Generate what the chart has from elsewhere: definitions, README, descriptions
	$(BIN)/python -m tests.chart.generate

kustomize: setup ## Generate charts/kustomize from the chart
	$(BIN)/python -m tests.chart.kustomize

site: setup ## Build the documentation into site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

ENGINE ?= docker
IMAGE ?= usher:dev
image: ## Build the image (ENGINE=podman IMAGE=registry/usher:tag); needs a container engine
	$(ENGINE) build --tag $(IMAGE) --build-arg REVISION="$$(git rev-parse HEAD)" \
		--build-arg SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" .

# The minor version is that of the Dockerfile. pyenv's python3.13 wants to be told which one it is.
IMAGE_MINOR := $(shell sed -n 's|^ARG BUILD_IMAGE=.*/python:\(3\.[0-9]*\).*|\1|p' Dockerfile)
IMAGE_PYTHON ?= python$(IMAGE_MINOR)
IMAGE_VENV := build/python$(IMAGE_MINOR)
image-python: export PYENV_VERSION ?= $(IMAGE_MINOR)
image-python: ## Test TLS and the rest of the client on the image's Python, if it is installed
	@if ! $(IMAGE_PYTHON) -c ''; then \
		echo "skipped: there is no $(IMAGE_PYTHON); name another one by IMAGE_PYTHON=…"; exit 0; fi; \
	set -e; \
	[ $(IMAGE_VENV)/.ready -nt requirements/dev.txt ] || { \
		$(IMAGE_PYTHON) -m venv --clear $(IMAGE_VENV); \
		$(IMAGE_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes \
			-r requirements/dev.txt; \
		touch $(IMAGE_VENV)/.ready; }; \
	$(IMAGE_VENV)/bin/python -m pytest -m "not e2e" tests/cluster

sbom: setup ## Write build/sbom.cdx.json: what is in the image beside its base (CycloneDX)
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		-o build/sbom.cdx.json requirements/runtime.txt

lock: setup ## Pin the dependencies again, with hashes
	$(BIN)/$(LOCK) pyproject.toml -o requirements/runtime.txt
	$(BIN)/$(LOCK) pyproject.toml --extra dev -o requirements/dev.txt
	$(BIN)/$(LOCK) --group build -o requirements/build.txt

clean: ## Remove everything that these targets made in this folder
	rm -rf $(VENV) build site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
