# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: install demo test check clean

install: $(READY)

# Done once for each state of the two files that say what to install.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python -m jobs.run_pipeline --preset demo --dataset demo --storage .rayrank

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=platform:. $(BIN)/lint-imports

clean:
	rm -rf .venv .rayrank
