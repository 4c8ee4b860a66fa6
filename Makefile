# Each target is enough on a fresh machine with python3 (3.11 or later), make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
BENCH_READY := $(VENV)/ready-bench
# Where the benchmarks write their figures to: make bench JSON=figures.json
JSON ?= $(VENV)/bench.json

.PHONY: demo test test-long check bench bench-quick clean

demo: $(READY)
	@rm -rf demo-ledger
	PATH="$(BIN):$$PATH" rollout-ledger recompute --still 0 --config examples/ledger.toml --ledger demo-ledger
	@echo
	PATH="$(BIN):$$PATH" rollout-ledger sql --ledger demo-ledger "$$(cat examples/weights.sql)"
	@echo
	PATH="$(BIN):$$PATH" rollout-ledger audit fan_out --ledger demo-ledger --split train --from 39

test: $(READY)
	$(BIN)/python -m pytest -q -n 2

# The same questions, asked longer: 2,000 random runs against the reference, 200 recomputes killed on the way.
test-long: $(READY)
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -q -n 2 tests/test_parity.py tests/unattended/test_crashes.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Contestants side by side on data made for it; fails where their results differ, not where a target is missed.
bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks.suite --json $(JSON)

bench-quick: $(BENCH_READY)
	$(BIN)/python -m benchmarks.suite --quick --json $(JSON)

clean:
	rm -rf $(VENV) demo-ledger build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rollout-ledger needs Python 3.11 or later; give one as: make PYTHON=python3.12 ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,check]'
	touch $(READY)

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $(BENCH_READY)
