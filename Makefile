# All targets work on a fresh clone: they set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS ?= runs/first
BENCH ?=  # --quick: a few minutes
ATTACK ?=  # --minutes 5

.PHONY: run test check attack setup lint bench docs wheel clean

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

run: setup  ## Train CAVIA and MAML on sine curves, print the comparison, write the report page.
	$(BIN)/cavia run table1 --first --out $(RUNS)/table1
	$(BIN)/cavia report $(RUNS)
	@echo
	@echo "Next: open report/index.html in a browser. Then"
	@echo "    source $(VENV)/bin/activate"
	@echo "    cavia demo         # click curves, reveal faces, set goals"
	@echo "    cavia list         # all experiments of the paper and beyond"
	@echo "or read docs/guides/tour.md, five minutes with the library."

test: setup lint  ## Lint, types and the test suite, but for what takes minutes.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not check"

check: test docs  ## Everything: what `make test` leaves out, the peers of the benchmarks, the documentation.
	$(PIP) -e '.[bench]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m check

attack: setup  ## An hour of generated misuse and damaged files, 400 kills: the figures in results/attack.
	$(BIN)/python -m attacks --out results/attack $(ATTACK)
	$(BIN)/python -m attacks.kills | tee results/attack/kills.md

setup: $(VENV)/.installed  ## The environment that all share.

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("cavia needs Python 3.11 or newer, this is %d.%d; run make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup  ## The documentation as a site, in build/site.
	$(PIP) -e '.[docs]'
	$(BIN)/mkdocs build

wheel: setup  ## The distribution in build/dist, tried in an environment of its own.
	$(PIP) build
	rm -rf build/dist build/empty
	$(BIN)/python -m build --quiet --outdir build/dist
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls build/dist/*.whl)[all]"
	cd build && empty/bin/python -m cavia doctor && empty/bin/cavia models && empty/bin/cavia evaluate sine --tasks 100
	build/empty/bin/python examples/sine.py --iterations 200

bench: setup  ## Speed against the peers and the machine's peak, in one run: bench.md, .json and .png.
	$(PIP) -e '.[bench]'
	$(BIN)/python benchmarks/all.py $(BENCH)

clean:
	rm -rf $(VENV) runs build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
