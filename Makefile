PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup check test test-heavy demo bench-plans bench-joint bench-central bench-field bench-client bench-house clean

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --doctest-modules protocol client_sdk aggregator simulations benchmarks demo

test: setup
	$(BIN)/pytest tests -m "not heavy"

test-heavy: setup
	$(BIN)/pytest tests -m heavy

demo: setup
	$(BIN)/python -m demo

bench-plans: setup
	$(BIN)/python -m benchmarks plans

bench-joint: setup
	$(BIN)/python -m benchmarks joint

bench-central: setup
	$(BIN)/python -m benchmarks central

bench-field: setup
	$(BIN)/python -m benchmarks field

bench-client: setup
	$(BIN)/python -m benchmarks client

bench-house: setup
	$(BIN)/python -m benchmarks house

clean:
	rm -rf $(VENV) build dist
