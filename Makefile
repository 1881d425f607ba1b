# On a machine with Python 3.11 or later and make, every target below does its own set-up, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
SEED ?= 1

.PHONY: help demo test lint format docs bench clean

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## wrong gradients and what is said about them; leaves gradproof-demo.html
	$(BIN)/gradproof demo

test: $(READY)  ## the whole suite; one thread for each of the two workers; SEED=2 draws other directions
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q --gradproof-seed=$(SEED)

lint: $(READY)  ## style, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## the documents, in docs/_build/html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q docs docs/_build/html

bench: $(READY)  ## the tables of benchmarks/ that need no GPU and no other packages, beside torch's own checks
	for table in beside_gradcheck false_alarms temptations detection float32 scale cost fails full orders diagnosis kernels compare import_time sparse_database sparse_scale sparse_products sparse_checks sparse_optimizers steps seeds kernel_contracts audit torch_tests; do $(BIN)/python -m benchmarks.$$table || exit 1; done

clean:
	rm -rf $(VENV)
