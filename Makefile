# `make run` and `make test` work on a fresh clone: both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS ?= runs/first
BENCH ?=  # --quick: a few minutes

.PHONY: run test setup lint bench docs clean

run: setup  ## Train CAVIA and MAML on sine curves, print the comparison, write the report page.
	$(BIN)/cavia run table1 --first --out $(RUNS)/table1
	$(BIN)/cavia report $(RUNS) --out $(RUNS)/report

test: setup lint  ## Lint, types and the whole test suite.
	$(BIN)/python -m pytest -n 2 --dist worksteal

setup: $(VENV)/.installed  ## The environment that both share.

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("cavia needs Python 3.11 or newer, this is %d.%d; run make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup  ## The documentation as a site, in build/site.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build

bench: setup  ## Speed against the peers and the machine's peak, in one run: bench.md, .json and .png.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/all.py $(BENCH)

clean:
	rm -rf $(VENV) runs build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
