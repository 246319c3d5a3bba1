# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
# pip compiles nothing, because few of the 24,000 modules are ever used. IMPORT_ALL imports those that the first job would
# otherwise compile in each of its processes: all stages and runs, the endpoint, and Ray's own processes.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
IMPORT_ALL := import pkgutil, rayrank.jobs.run_pipeline, rayrank.jobs.export, rayrank.serve.app, rayrank.stages, \
	rayrank.runs, ray.dashboard.agent, ray.dashboard.dashboard; \
	[pkgutil.resolve_name(found.name) for package in (rayrank.stages, rayrank.runs) \
	for found in pkgutil.iter_modules(package.__path__, package.__name__ + ".")]
unexport PYTHONDONTWRITEBYTECODE
READY := .venv/.ready
READY_TO_TEST := .venv/.ready-to-test

# What the site's pages link to, as they lie in the repository.
SITE := README.md CHANGELOG.md CONTRIBUTING.md LICENSE cluster.yaml deploy docs/*.md docs/*.png benchmarks/*.md \
	benchmarks/*.png platform/rayrank/core/presets.py

.PHONY: install demo test test-all check docs clean

install: $(READY)

# Both run again when one of the two files changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip  # a later pip finds the packages in half the time
	$(PIP) -e '.[irds]'
	$(BIN)/python -c '$(IMPORT_ALL)'
	touch $@

$(READY_TO_TEST): $(READY)
	$(PIP) -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python -m jobs.run_pipeline --preset demo --dataset demo --storage .rayrank

# Two processes share the tests, longest first; then one process runs the tests that measure time.
TOGETHER := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
ALONE := $(BIN)/python -m pytest
# A failed test runs once more, alone: on two busy cores a process sometimes starts too late for Ray's limits.
# A test that fails again, and everything that is not a failed test (pytest's exit codes above 1), fails the command.
AGAIN := || { [ $$? -eq 1 ] && $(ALONE) --last-failed --last-failed-no-failures none; }
test: $(READY_TO_TEST)
	$(TOGETHER) -m "not timed and not slow" $(AGAIN)
	$(ALONE) -m "timed and not slow" $(AGAIN)

test-all: $(READY_TO_TEST)
	$(TOGETHER) -m "not timed" $(AGAIN)
	$(ALONE) -m timed $(AGAIN)

check: $(READY_TO_TEST)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=platform:. $(BIN)/lint-imports

# The site lies in build/site and needs no network.
docs: $(READY)
	$(PIP) -e '.[docs]'
	rm -rf build/docs build/site
	mkdir -p build/docs
	tar cf - $(SITE) | tar xf - -C build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/mkdocs.yml

clean:
	rm -rf .venv .rayrank
