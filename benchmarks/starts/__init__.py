"""Benchmarks of what a run waits for before its first step."""
