# On a machine with Python 3.11 or later and make, every target below does its own set-up, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: help demo test lint format bench clean

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## a right gradient, a subtly wrong one, and a kink, each with its report
	$(BIN)/python -m gradproof.demo

test: $(READY)  ## the whole suite
	$(BIN)/python -m pytest -n 2 -q

lint: $(READY)  ## style, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## every table in benchmarks/, side by side with torch's own checks
	for table in false_alarms detection float32 scale cost full orders sparse_database sparse_scale import_time; do $(BIN)/python -m benchmarks.$$table || exit 1; done

clean:
	rm -rf $(VENV)
