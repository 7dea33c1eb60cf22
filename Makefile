# Names for the commands. `make run` and `make test` do everything on a machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.up-to-date

.PHONY: setup run test browser check test-slow soak golden results examples docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check torch -e '.[dev,docs]'
	touch $(STAMP)

run: setup
	$(BIN)/fedade run

test: setup check browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The report page is looked at in a real browser; where none can be had, its tests say so and skip.
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && exit 0; done; \
	(apt-get update -qq && apt-get install -y -qq chromium) >/dev/null 2>&1 || echo "no browser: tests of the page skip"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: setup browser
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

# Two hundred kills of runs and fifty of a fleet at random moments, and runs of thousands of timesteps; hours on a small machine.
soak: setup
	$(BIN)/python -m tests.soak --kills 200
	$(BIN)/python -m tests.soak_fleet --kills 50
	$(BIN)/python -m tests.soak_length --timesteps 3000

golden: setup
	FEDADE_REWRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

# Every table of results in the documents, from the files in docs/results.
results: setup
	$(BIN)/fedade results write README.md docs/*.md docs/results/*.md research/*.md

# The tutorials as scripts; a test holds them to it.
examples: setup
	$(BIN)/python docs/_ext/example_scripts.py

# The site, from docs/ into build/site: tutorials are executed; warnings, errors and dead links fail.
docs: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W -n --keep-going -q -b html docs build/site

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
