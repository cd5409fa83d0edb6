# Two commands are all a newcomer needs: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

.PHONY: demo test test-wheel bench check lint types imports install install-dev proof proofs wheel docs clean help

help:  ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: install  ## venv, install, and the whole life of a small model on real text (6 to 11 minutes on 2 cores)
	@$(BIN)/llmexp experiment=quickstart

test: install-dev  ## the tests that any user can run
	@$(BIN)/python -m pytest

test-wheel: install-dev  ## the wheel, also on the newest other Python here (gigabytes from the index)
	@LLMEXP_TEST_OTHER_PYTHON=1 $(BIN)/python -m pytest tests/end_to_end/test_wheel.py -o timeout=1800

# Apart from the tests, since what else the machine does moves a ratio. The full benches have tighter aims.
bench: install-dev  ## short benches against peers, which fail at a collapse of speed (2 minutes)
	@$(BIN)/python -m bench.train_step --blocks 6 --steps 1 --batch 4 --seq-len 128 --at-least 0.85
	@$(BIN)/python -m bench.dataloader --steps 20 --at-most 0.05
	@$(BIN)/python -m bench.tokenize_speed --mb 2 --blocks 5 --at-least 2.5

install: $(VENV)/.installed  ## llmexp in a venv, torch for the device found here

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make demo PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Without an NVIDIA GPU the CPU build is enough and gigabytes smaller; elsewhere PyPI's build fits.
$(VENV)/.torch: $(VENV)/.python constraints.txt
	@if command -v nvidia-smi >/dev/null 2>&1 || [ "$$(uname -s)" != Linux ]; then \
		echo "installing torch $(TORCH)"; $(PIP) install -q "torch==$(TORCH)"; \
	else \
		echo "installing torch $(TORCH), CPU build: no NVIDIA GPU here"; \
		$(PIP) install -q "torch==$(TORCH)+cpu" 2>/dev/null \
		|| $(PIP) install -q --index-url https://download.pytorch.org/whl/cpu "torch==$(TORCH)" \
		|| $(PIP) install -q "torch==$(TORCH)"; \
	fi
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "installing llmexp and what it is built on"
	@$(PIP) install -q -c constraints.txt -e .
	@touch $@

install-dev: $(VENV)/.installed-dev  ## the same with what tests, lint and types need

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools of the tests"
	@$(PIP) install -q -c constraints.txt -e ".[dev,hub,wandb,web]"
	@touch $@

lint: install-dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell

types: install-dev
	@$(BIN)/mypy

imports: install-dev
	@$(BIN)/lint-imports

check: lint types imports  ## lint, types, import order

proof: install-dev  ## a whole table of proofs, written to docs/proofs: make proof quickstart
	@$(BIN)/python -m bench.proofs $(filter-out proof,$(MAKECMDGOALS))

proofs: install-dev  ## all tables
	@$(BIN)/python -m bench.proofs --all

# The name after `proof` is an argument, not a target.
ifeq (proof,$(firstword $(MAKECMDGOALS)))
$(eval $(filter-out proof,$(MAKECMDGOALS)):;@:)
endif

wheel: install-dev  ## the wheel, configs included
	@rm -rf dist && $(PIP) wheel -q --no-deps -w dist .

docs: install  ## the reference pages, generated from the specs
	@$(BIN)/python -m llmexp.cli.reference docs/reference

clean:  ## remove build products; outputs/ and the venv stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
