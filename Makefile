# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# torch is no dependency, but tests and types need it: the version that constraints.txt names, and of
# it the CPU build. `make test TORCH=no` leaves it out.
TORCH ?= yes
TORCH_READY := $(VENV)/.torch
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
REPORTS := $(VENV)/reports
PACKAGES := everstep everstep_common everstep_proto everstep_agent everstep_controller everstep_cli
PYTEST := $(BIN)/python -m pytest
# Tests in the order that tests/conftest.py puts them in: the longest first.
DIST := --dist loadgroup --no-loadscope-reorder
# Frameworks that have a callback or an example; only the long tests need them.
FRAMEWORKS := $(VENV)/.frameworks
# Two workers: integration tests mostly wait, and more of them on a small machine that has other work
# to do miss deadlines. CI takes three for those that need only Python.
WORKERS ?= 2
SEED ?= 7
# What `make check` runs beside one another; the longest first.
CHECKS := check-types check-pyright check-layers check-facts check-pages check-style

# Where this is set, each of the hundreds of processes that tests start compiles all of its source.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo dist release images test test-thorough test-all test-jitter test-real test-long test-kubernetes field field-hangs chaos check $(CHECKS) house format \
	reference proto clean

help: ## List what can be made.
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

install: $(READY) ## Make the virtual environment and install everything into it.

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
			"Install it, or name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Python's venv module is missing. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Everstep and its tools into $(VENV) (about a minute) ..."
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@
	@echo "Installed."

$(TORCH_READY): $(READY)
	@echo "Installing torch into $(VENV), for tests and types: the CPU build, 200 MB to download; where"
	@echo "that cannot be had, the build of your package index, which may bring CUDA: up to 5 GB."
	@echo "To leave it out: make test TORCH=no. The tests that need it are then skipped."
	@$(PIP) install --constraint constraints.txt --timeout 15 --retries 1 \
		--index-url $(TORCH_INDEX) torch || { \
		echo "No CPU build from $(TORCH_INDEX). Installing the build of your package index ..."; \
		$(PIP) install --constraint constraints.txt torch; }
	@$(PIP) install --constraint constraints.txt torchdata
	@touch $@

$(FRAMEWORKS): $(TORCH_READY)
	@echo "Installing the Hugging Face Trainer, Lightning and Paddle into $(VENV), for their tests ..."
	@$(PIP) install --constraint constraints.txt transformers accelerate lightning paddlepaddle
	@touch $@

demo: $(READY) ## Run the demonstration: a small cluster on this machine, three failures, their cost.
	@$(BIN)/everstep demo

test: $(if $(filter no,$(TORCH)),$(READY),$(TORCH_READY)) ## Run the tests that need only Python packages: 12 minutes (TORCH=no: without torch).
	@mkdir -p $(REPORTS)
	$(PYTEST) -m 'not real and not long and not thorough' -n $(WORKERS) $(DIST) \
		--durations=50 --junitxml=$(REPORTS)/test.xml tests

# Only the files that have such cases: to collect all others takes longer than many a test.
test-thorough: $(if $(filter no,$(TORCH)),$(READY),$(TORCH_READY)) ## Run what `make test` leaves out: more cases, whole jobs; 45 minutes.
	@mkdir -p $(REPORTS)
	$(PYTEST) -m 'thorough and not real and not long' -n $(WORKERS) $(DIST) \
		--durations=50 --junitxml=$(REPORTS)/test-thorough.xml $$($(BIN)/python tools/test_times.py --files)

# In one run, so that the tests are collected once and neither worker waits for the other in between.
test-all: $(if $(filter no,$(TORCH)),$(READY),$(TORCH_READY)) ## Run what `make test` and `make test-thorough` run, in one run.
	@mkdir -p $(REPORTS)
	$(PYTEST) -m 'not real and not long' -n $(WORKERS) $(DIST) \
		--durations=50 --junitxml=$(REPORTS)/test-all.xml tests

test-jitter: $(TORCH_READY) ## Look for races: tests of loops and sockets with hostile timing (SEED=7).
	EVERSTEP_TEST_JITTER=$(SEED) $(PYTEST) -m 'not real and not long' -n $(WORKERS) \
		$(DIST) tests/integration tests/unit/agent tests/unit/vault

# Those of the group "booted machines" one after the other: two at once are too many for this one.
test-real: $(TORCH_READY) ## Run the tests with real servers; as root, install those by apt first (WORKERS=1: one by one).
	@.ci/install-servers
	@mkdir -p $(REPORTS)
	$(PYTEST) -m 'real and not long' -n $(WORKERS) $(DIST) \
		--junitxml=$(REPORTS)/test-real.xml tests/real

test-long: $(FRAMEWORKS) ## Run the long seeded tests, and the mutants (some hours).
	@mkdir -p $(REPORTS)
	$(PYTEST) -m long -n $(WORKERS) $(DIST) --junitxml=$(REPORTS)/test-long.xml tests
	$(BIN)/python tools/mutants.py

test-kubernetes: $(READY) ## Run the suite of the Kubernetes driver at a real kube-apiserver 1.20, built once from Debian's source (7 minutes).
	$(PYTEST) -n 0 -m long tests/real/kubernetes

field: $(FRAMEWORKS) ## Play the field for an hour, as root: booted machines, shipped units, users' jobs, faults (FIELD="--minutes 5 --machines 3").
	@.ci/install-servers
	PYTHONPATH=tests $(BIN)/python -m field $(FIELD)

field-hangs: $(TORCH_READY) ## Hang 160 jobs under the shipped units, as root, half of them with torch, and time how soon each trains on (FIELD="--repeats 3 --scripts torch").
	@.ci/install-servers
	PYTHONPATH=tests $(BIN)/python -m field.hangs $(FIELD)

chaos: $(READY) ## Kill, stop and cut three controllers, their database and agents at random for an hour, as root, and judge what they left (CHAOS="--minutes 5 --seed 7").
	@.ci/install-servers
	PYTHONPATH=tests $(BIN)/python -m chaos $(CHAOS)

check: $(TORCH_READY) ## Run what CI runs before the tests: style, types, layers, generated files.
	@$(MAKE) --no-print-directory --jobs=$(WORKERS) --output-sync=target $(CHECKS)

check-style: $(TORCH_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(TORCH_READY) ## Run mypy over every package, test and script.
	$(BIN)/mypy $(addprefix -p ,$(PACKAGES))
	$(BIN)/mypy tests bench docs examples tools .ci/no_skips.py
	$(BIN)/mypy monitoring
	$(BIN)/mypy packages

check-pyright: $(TORCH_READY)
	@command -v node >/dev/null || { echo "Installing Node.js for pyright ..."; \
		$(PIP) install 'pyright[nodejs]'; }
	@# Where its heap ends, Node.js does little but look for memory; by default that is at 4 GB.
	NODE_OPTIONS=--max-old-space-size=10240 $(BIN)/pyright

check-layers: $(TORCH_READY)
	PYTHONPATH=tests $(BIN)/lint-imports

check-facts: $(TORCH_READY)
	$(BIN)/python tools/house.py --check

check-pages: $(TORCH_READY)
	$(PYTEST) -q tests/unit/proto/test_contract.py tests/unit/docs

house: $(TORCH_READY) ## Print the counts of the source tree (tools/house.py --against REV: beside another's).
	$(BIN)/python tools/house.py

format: $(READY) ## Format the code and apply the safe fixes.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY) ## Write docs/configuration.md, docs/metrics.md, docs/signals.md, docs/claims.md, the life cycles and Grafana's boards.
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/generate_metrics.py
	$(BIN)/python docs/generate_signals.py
	$(BIN)/python docs/generate_lifecycles.py
	$(BIN)/python tools/claims.py write
	$(BIN)/python monitoring
	$(BIN)/python docs/generate_kubernetes.py

dist: $(READY) ## Build the wheel and the source archive into dist/.
	@$(BIN)/python packages --no-deb

release: $(READY) ## Build a release into dist/: also the packages of Debian 12 and 13 and Ubuntu 24.04, with hashes; a while.
	@$(BIN)/python packages

images: $(READY) ## Build the images of agent and controller into dist/images/, as OCI archives; two minutes.
	@$(BIN)/python packages images

proto: $(READY) ## Write the stubs from proto/*.proto.
	$(BIN)/python -m everstep_proto.regenerate

clean: ## Remove the virtual environment and every cache.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
