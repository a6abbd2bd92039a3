"""Imported last by what tests fork: what is there by then is no garbage, and no fork need search and copy it."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
