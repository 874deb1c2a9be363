# Everything here sets itself up: a fresh machine needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: venv demo test test-real check format lint types bench dashboards screenshots lock clean

venv: .venv/ready
.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; say make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: venv
	$(BIN)/manometer demo $(ARGS)

test: venv
	sh tests/prepare.sh
	$(BIN)/python -m pytest -m "not real" $(ARGS)

test-real: venv
	sh tests/prepare.sh
	$(BIN)/python -m pytest -m real $(ARGS)

check: format lint types test

format: venv
	$(BIN)/ruff format --check .

lint: venv
	$(BIN)/ruff check .

types: venv
	$(BIN)/mypy

bench: venv
	$(BIN)/python benchmarks/run.py $(ARGS)

dashboards: venv
	$(BIN)/python -m grafana.dashboards

screenshots: venv
	$(BIN)/python tests/screenshots.py

lock: venv
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --no-emit-index-url --no-emit-find-links --generate-hashes --allow-unsafe --strip-extras --all-extras --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
