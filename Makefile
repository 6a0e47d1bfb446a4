# Makes .venv by itself. Stamps in it tell what is installed, so that a second `make serve` starts
# at once.
#
#   PYTHON    the Python that .venv is made of (3.11 or newer)
#   PIP_ARGS  options for pip, to choose a build of PyTorch for instance:
#             make serve PIP_ARGS="--extra-index-url <address of PyTorch's CPU index>"
#   ARGS      options for what the target runs: make serve ARGS="--port 9000"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP_ARGS ?=
ARGS ?=

PIP := .venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt
DECLARED := pyproject.toml constraints.txt

.PHONY: help install dev serve test test-slow check clean

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: .venv/.installed ## what serving needs, in .venv

dev: .venv/.installed-dev ## what the tests need too

serve: .venv/.installed ## start the server: ARGS="--model smollm2 --port 8000"
	.venv/bin/octavo serve $(ARGS)

test: .venv/.installed-dev ## run the tests: ARGS="tests/core -k hash"
	scripts/test $(ARGS)

test-slow: .venv/.installed-dev ## run the slow tests
	scripts/test -m slow $(ARGS)

check: .venv/.installed-dev ## format, lint, types, import contracts
	scripts/check

clean: ## remove .venv and what tools left
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find octavo tests -name __pycache__ -prune -exec rm -rf {} +

# pip comes last into a new environment: without it, its making was interrupted.
.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.installed: $(DECLARED) | .venv/bin/pip
	@echo "installing Octavo in .venv (PyTorch is the large part)" >&2
	$(PIP) $(PIP_ARGS) -e .
	@touch $@

.venv/.installed-dev: $(DECLARED) | .venv/bin/pip
	@echo "installing Octavo and its test tools in .venv" >&2
	$(PIP) $(PIP_ARGS) -e '.[dev]'
	@touch .venv/.installed $@
