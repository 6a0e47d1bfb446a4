# Makes .venv by itself. Stamps in it tell what is installed, so that a second `make serve` starts
# at once.
#
#   PYTHON    the Python that .venv is made of (3.11 or newer)
#   EXTRA     what to install besides: make serve EXTRA=torch, for CUDA
#   PIP_ARGS  options for pip, to choose a build of PyTorch for instance:
#             make test PIP_ARGS="--extra-index-url <address of PyTorch's CPU index>"
#   ARGS      options for what the target runs: make serve ARGS="--port 9000"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
EXTRA ?=
PIP_ARGS ?=
ARGS ?=

PIP := .venv/bin/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -c constraints.txt
INSTALLED := .venv/.installed$(EXTRA:%=-%)
DECLARED := pyproject.toml constraints.txt
NATIVE := CMakeLists.txt $(wildcard csrc/*)

.PHONY: help install dev serve test test-slow test-models conformance sanitize valgrind check wheel wheel-test clean

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(INSTALLED) ## what serving needs, in .venv

dev: .venv/.installed-dev ## what the tests need too

serve: $(INSTALLED) ## start the server: ARGS="--model smollm2 --port 8000"
	.venv/bin/octavo serve $(ARGS)

test: .venv/.installed-dev ## run the tests: ARGS="tests/core -k hash"
	scripts/test $(ARGS)

test-slow: .venv/.installed-dev ## run the slow tests
	scripts/test -m slow $(ARGS)

test-models: .venv/.installed-dev ## test every model type that Transformers knows
	scripts/test -m slow tests/fallback/test_census.py $(ARGS)

conformance: .venv/.installed-dev .venv/.installed-eval .venv-clients/.installed ## lm-eval's scores over HTTP, and without; other clients
	scripts/test -m slow tests/e2e/test_lm_eval.py tests/e2e/test_clients.py $(ARGS)

sanitize: .venv/.installed-dev ## the native tests under AddressSanitizer and UBSan
	scripts/sanitize $(ARGS)

valgrind: .venv/.installed-dev ## a small step under valgrind, which must be installed
	scripts/valgrind $(ARGS)

check: .venv/.installed-dev ## format, lint, types, import contracts
	scripts/check

wheel: .venv/.build-tools ## build the wheel, in dist
	rm -f dist/octavo-*.whl
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

wheel-test: wheel ## install the wheel where there is no compiler, and try it
	scripts/wheel-test

clean: ## remove the environments and what tools left
	rm -rf .venv .venv-clients build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find octavo tests -name __pycache__ -prune -exec rm -rf {} +

# pip comes last into a new environment: without it, its making was interrupted.
.venv/bin/pip:
	$(PYTHON) -m venv .venv

# Without isolation, as that would move CMake and nanobind every time, and all be compiled anew.
.venv/.build-tools: $(DECLARED) | .venv/bin/pip
	$(INSTALL) scikit-build-core nanobind cmake ninja
	@touch $@

.venv/.installed: $(DECLARED) $(NATIVE) .venv/.build-tools
	@echo "installing Octavo in .venv; compiling takes a few minutes the first time" >&2
	$(INSTALL) $(PIP_ARGS) --no-build-isolation -e .
	@touch $@

.venv/.installed-%: $(DECLARED) $(NATIVE) .venv/.build-tools
	@echo "installing Octavo and '$*' in .venv; PyTorch is the large part" >&2
	$(INSTALL) $(PIP_ARGS) --no-build-isolation -e '.[$*]'
	@touch .venv/.installed $@

# Clients that want other versions of what the tests use.
.venv-clients/.installed: tests/e2e/clients.txt
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip --disable-pip-version-check install $(PIP_ARGS) -r $<
	@touch $@
