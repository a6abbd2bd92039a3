# Every command runs in the environment that uv keeps in .venv; `uv sync` makes it.

.PHONY: check quick test docs chaos

WORKERS = 2

check:  ## everything that has to pass before a change goes in
	uv run ruff check
	uv run ruff format --check
	uv run mypy
	uv run pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

quick:  ## an answer in two minutes: all that needs no process, server, training or compiler; mypy runs beside it
	uv run ruff check
	uv run ruff format --check
	uv run mypy & uv run --no-sync pytest -q -n $(WORKERS) --dist worksteal \
		-m "not slow and not service and not gpu"; failed=$$?; wait $$! && exit $$failed

test:
	uv run pytest

docs:  ## write docs/configuration.md anew from conf/, and build the site into site/
	uv run python -m docs.generate_configuration
	NO_MKDOCS_2_WARNING=1 uv run --group docs mkdocs build --strict

MINUTES = 30

chaos:  ## real launches, a fault for each, and everything counted: make chaos MINUTES=30 [SEED=7]
	uv run python -m tests.chaos $(MINUTES) $(if $(SEED),--seed $(SEED))
