"""A search of settings, run as a sweep: results so far choose the next jobs. It ends with an answer."""

from tracking.jobs.search.axes import checked_request
from tracking.jobs.search.search_jobs import SearchJobs
from tracking.jobs.search.search_request import search_of
from tracking.jobs.search.trace_file import answer_in, damage

__all__ = ["SearchJobs", "answer_in", "checked_request", "damage", "search_of"]
