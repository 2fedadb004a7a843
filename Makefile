# Two commands on a fresh machine: `make demo` and `make test`. Everything lives in .venv.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q

.PHONY: demo test check format docs bench setup clean test-rest

demo: $(VENV)/.demo
	@STEPSCOPE_STEPS="$${STEPSCOPE_STEPS-5,8-9}" STEPSCOPE_LEVEL="$${STEPSCOPE_LEVEL-ops}" $(BIN)/stepscope demo $(ARGS)

test: $(VENV)/.dev check
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python docs/reference.py --check

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev
	$(BIN)/python docs/reference.py

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench $(ARGS)

setup: $(VENV)/.dev

# torch goes first and alone, so that the build that is asked for is the one that everything else is resolved against.
$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) "$(TORCH)"
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	$(PIP) -e ".[demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .venv-* runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
