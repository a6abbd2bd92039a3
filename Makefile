# Every command runs in the environment that uv keeps in .venv; `uv sync` makes it.

.PHONY: check test docs

check:  ## everything that has to pass before a change goes in
	uv run ruff check
	uv run ruff format --check
	uv run mypy
	uv run pytest

test:
	uv run pytest

docs:  ## write docs/configuration.md anew from conf/, and build the site into site/
	uv run python -m docs.generate_configuration
	NO_MKDOCS_2_WARNING=1 uv run --group docs mkdocs build --strict
