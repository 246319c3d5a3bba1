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

# Tests that measure time have the machine to themselves; the slow ones among the others come first.
TIMED := tests/serve tests/unit/serve
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TIMED:%=--ignore=%)
	$(BIN)/python -m pytest $(TIMED)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=platform:. $(BIN)/lint-imports

clean:
	rm -rf .venv .rayrank
