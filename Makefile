# Names for the commands. `make run` and `make test` do everything on a machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.up-to-date

.PHONY: setup run test check test-slow golden clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check torch -e '.[dev]'
	touch $(STAMP)

run: setup
	$(BIN)/fedade run

test: setup check
	$(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: setup
	$(BIN)/python -m pytest -m slow

golden: setup
	FEDADE_REWRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
