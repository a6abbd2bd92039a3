# `make check` and `make quick` set up their environment. The others run in the one that `uv sync` makes.

.PHONY: check exhaustive quick test docs chaos

# Tests wait for servers and processes for most of their time, so eight workers share two cores. Each has 0.7 GB of
# memory to itself, and takes 15 s of a core to collect the tests.
WORKERS = 8
LONG_TO_COMPILE = hydra, matplotlib.pyplot, mlflow.server, pytorch_lightning, scipy.stats, torchvision, torch._dynamo
RUN = uv run --no-sync
BEGAN := $(shell date +%s)
# pip installs uv here for a user other than root.
export PATH := $(PATH):$(HOME)/.local/bin
# Where nothing keeps bytecode, each process of the tests would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

check:  ## all checks and tests that a change must pass, with their set-up
	.ci/set-up
	$(RUN) ruff check
	$(RUN) ruff format --check
# Bytecode is compiled once for all test processes, also of the tests, while the other core runs mypy.
	( PYTHONPYCACHEPREFIX=$(CURDIR)/.bytecode_cache $(RUN) python -W ignore -c 'import $(LONG_TO_COMPILE)'; \
		$(RUN) pytest --collect-only -q >/dev/null 2>&1 ) & $(RUN) mypy; failed=$$?; wait; exit $$failed
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict  # with --quiet it would ignore warnings
# The tests of a file share fixtures, so they stay in one worker. Files with slow tests come first (tests/conftest.py).
	.ci/tests -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 30 -m "not exhaustive"
	@echo "All passed, in $$(( ($$(date +%s) - $(BEGAN)) / 60 )) minutes with the set-up."

exhaustive:  ## further cases, which `make check` leaves out because of their time
	.ci/set-up
	$(RUN) pytest -n $(WORKERS) --dist loadfile -m exhaustive

quick:  ## tests without processes, servers, trainings and compilers, for use while you work; mypy runs beside them
	.ci/set-up quick
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy & $(RUN) pytest -q -n 2 --dist worksteal \
		-m "not slow and not service and not gpu"; failed=$$?; wait $$! && exit $$failed

test:
	uv run pytest

docs:  ## generate docs/configuration.md from conf/, and build the site into site/
	uv run python -m docs.generate_configuration
	NO_MKDOCS_2_WARNING=1 uv run --group docs mkdocs build --strict

MINUTES = 30

chaos:  ## real launches with a fault in each: make chaos MINUTES=30 [SEED=7]
	uv run python -m tests.chaos $(MINUTES) $(if $(SEED),--seed $(SEED))
