"""A search of settings as a sweep. Its next jobs follow from what is known, and its end is an answer."""

from __future__ import annotations

from tracking.jobs.search.search_jobs import SearchJobs
from tracking.jobs.search.search_request import search_of
from tracking.jobs.search.trace_file import words_of

__all__ = ["SearchJobs", "search_of", "words_of"]
