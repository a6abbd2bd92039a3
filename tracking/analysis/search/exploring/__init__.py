"""Exploring: which setting to run next, and when to stop. It makes no claims."""
