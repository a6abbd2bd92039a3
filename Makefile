# `make check` and `make quick` set up what they need. The others run in the environment that `uv sync` makes.

.PHONY: check exhaustive quick test docs chaos

# Half of the tests' time is spent on waiting for servers and processes, so four share two cores.
WORKERS = 4
LONG_TO_COMPILE = hydra, matplotlib.pyplot, mlflow.server, pytorch_lightning, scipy.stats, torchvision, torch._dynamo
RUN = uv run --no-sync
BEGAN := $(shell date +%s)
# The folder where pip puts uv for a user who is not root.
export PATH := $(PATH):$(HOME)/.local/bin

check:  ## everything that has to pass before a change goes in, with all of its set-up
	.ci/set-up
	$(RUN) ruff check
	$(RUN) ruff format --check
# Python compiles what several test processes would each compile, while one core is busy with the checks.
	PYTHONPYCACHEPREFIX=$(CURDIR)/.bytecode_cache $(RUN) python -W ignore -c 'import $(LONG_TO_COMPILE)' & \
		$(RUN) mypy; failed=$$?; wait; exit $$failed
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict  # with --quiet it would count no warnings
# A file stays with its fixtures; files with slow tests come first (tests/conftest.py).
	$(RUN) pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 30 -m "not exhaustive"
	@echo "All passed, in $$(( ($$(date +%s) - $(BEGAN)) / 60 )) minutes with the set-up."

exhaustive:  ## the tests that `make check` leaves out for their time: further cases of what others show
	.ci/set-up
	$(RUN) pytest -n $(WORKERS) --dist loadfile -m exhaustive

quick:  ## an answer while you work: all that needs no process, server, training or compiler; mypy runs beside it
	.ci/set-up quick
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy & $(RUN) pytest -q -n 2 --dist worksteal \
		-m "not slow and not service and not gpu"; failed=$$?; wait $$! && exit $$failed

test:
	uv run pytest

docs:  ## write docs/configuration.md anew from conf/, and build the site into site/
	uv run python -m docs.generate_configuration
	NO_MKDOCS_2_WARNING=1 uv run --group docs mkdocs build --strict

MINUTES = 30

chaos:  ## real launches, a fault for each, and everything counted: make chaos MINUTES=30 [SEED=7]
	uv run python -m tests.chaos $(MINUTES) $(if $(SEED),--seed $(SEED))
