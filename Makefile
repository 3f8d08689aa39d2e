# Failback: two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
DOCS_VENV ?= .venv-docs
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
SRC := operator broker-image chaos analytics tests tools examples
ARGS ?=

.PHONY: help demo test test-all test-foreign soak lint format map bench images install dist clean docs docs-pages docs-pictures versions claims compare config-keys size asan audit hashes \
        setup setup-test setup-kube setup-bench setup-docs setup-dist \
        test-unit test-integration test-faults test-java test-spark test-e2e test-kube test-images

help:
	@echo "make demo        kill a master under load, with and without a consumer handover; report (ARGS=--quick, ARGS='--engine apache')"
	@echo "make test        lint, unit tests and a sample of every other tier, in 7 minutes"
	@echo "make test-all    lint and every test (ARGS=--rest: what 'make test' left)"
	@echo "make test-TIER   unit|integration|faults|java|spark|e2e|kube|images, whole (ARGS='-k name', ARGS=tests/kube/test_crds.py)"
	@echo "make test-foreign  input as other clients, editors and strangers make it: kinds and inputs tried"
	@echo "make bench       figures, as ratios against the opponent in the same run;  make bench-operator, bench-broker ... one"
	@echo "make install     the operator on the cluster of kubectl's context, with its images (ARGS=--registry HOST/PATH)"
	@echo "make images      the container images, with docker, podman or buildah (ARGS=broker builds one)"
	@echo "make dist        what is given to others, in dist/: wheels, the chart's archive, SBOM, checksums"
	@echo "make asan        tests of the kernels with AddressSanitizer and UBSan;  make audit: known vulnerabilities"
	@echo "make hashes      requirements/, after a change of constraints.txt or of an extra"
	@echo "make soak        the full counts: SIGKILLs, crash points, property examples"
	@echo "make docs        the pages of docs/ as a site in build/docs;  make docs-pages: those made from code"
	@echo "make docs-pictures  the pictures of docs/pictures, from a run of the demo (ARGS='--run RUN': from that run)"
	@echo "make versions    the demo on every tested version of RocketMQ, and docs/versions.md from it"
	@echo "make compare     the same question asked of Kafka and Redis, and docs/compare.md from it (ARGS=--page: from what is kept)"
	@echo "make claims      docs/claims.md and docs/experiments.md from the figures of runs (ARGS='claim-8-held-pull': run it first)"
	@echo "make config-keys  the keys of Apache's brokers, version by version, from their jars"
	@echo "make lint        ruff, mypy --strict, import contracts, the pages;  make format rewrites"
	@echo "make map         rooms, levels, arrows and circles of each package; draws docs/map.svg"
	@echo "make size        lines, options, cases and words beside tools/budget.toml (ARGS=--write lowers the budget)"
	@echo "make clean       remove the virtual environment and build products"

setup:
	@$(PYTHON) tools/setup.py demo --venv $(VENV)

setup-test:
	@$(PYTHON) tools/setup.py test --venv $(VENV)

# Half an hour; the first time it fetches Kafka and, where there is none, Redis.
compare: setup-test
	@$(BIN)/python tools/setup_compare.py
	@$(BIN)/python -m tools.compare $(ARGS)

# Runs experiments of the library if ARGS names some; takes minutes each.
claims: setup-test
	@$(BIN)/python -m tools.claims $(ARGS)

# Without Spark, a browser and the linters.
setup-kube:
	@$(PYTHON) tools/setup.py kube --venv $(VENV)

# Of a Python that was built with optimisation, as in the images, even if $(PYTHON) was not.
setup-bench:
	@$(PYTHON) tools/setup.py bench --venv $(BENCH_VENV)

setup-docs:
	@$(PYTHON) tools/setup.py docs --venv $(DOCS_VENV)

# Spark is fetched by the demo itself, when its table is out and a comparison is wanted.
demo: setup
	@$(BIN)/failback demo --fetch-spark "$(PYTHON) tools/setup.py spark --venv $(VENV)" $(ARGS)

test: setup-test
	@$(BIN)/python tools/run_tests.py --sample

test-all: setup-test
	@$(BIN)/python tools/run_tests.py $(ARGS)

test-unit test-integration test-faults test-java test-spark test-e2e test-images: setup-test
	@$(BIN)/python tools/run_tests.py --only $(subst test-,,$@) $(ARGS)

test-kube: setup-kube
	@$(BIN)/python tools/run_tests.py --only kube $(ARGS)

# `make test-all` has each of these tests in its tier; `make test` has none.
test-foreign: setup-test
	@$(PYTEST) tests/unit tests/integration -m "foreign and not soak" -q -n 2 --dist worksteal $(ARGS)

soak: setup-test
	@$(PYTEST) tests/unit -m "hypothesis and not soak" -q -n 2 --hypothesis-profile=soak
	@$(PYTEST) tests -m soak -s --timeout 0 $(ARGS)

bench: setup-bench
	@$(BENCH_VENV)/bin/python -m tests.benchmarks $(ARGS)

bench-%: setup-bench
	@$(BENCH_VENV)/bin/python -m tests.benchmarks.bench_$* $(ARGS)

images:
	@$(PYTHON) tools/build_images.py $(ARGS)

install:
	@$(PYTHON) tools/install_operator.py $(ARGS)

setup-dist:
	@$(PYTHON) tools/setup.py dist --venv $(VENV)

dist: setup-dist
	@$(BIN)/python tools/dist.py

docs: setup-docs
	@$(DOCS_VENV)/bin/python tools/build_docs.py

config-keys: setup-test
	@$(BIN)/python tools/config_keys.py

docs-pictures: setup-test
	@$(BIN)/python tools/docs_pictures.py $(ARGS)

docs-pages: setup-test
	@$(BIN)/python tools/reference_pages.py

versions: setup
	@$(BIN)/python tools/versions.py $(ARGS)

asan: setup-test
	@$(BIN)/python tools/sanitized.py $(ARGS)

audit: setup-test
	@$(BIN)/python tools/audit.py

hashes: setup-test
	@$(BIN)/python tools/hashes.py

lint: setup-test
	@$(BIN)/python tools/run_tests.py --only lint

format: setup-test
	@$(BIN)/ruff check --fix $(SRC)
	@$(BIN)/ruff format $(SRC)

map: setup-test
	@$(BIN)/python tools/module_map.py $(ARGS)

size: setup-test
	@$(BIN)/python tools/size.py $(ARGS)

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(DOCS_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
