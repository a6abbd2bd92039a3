"""Checks a request before anything starts: completes its config, or refuses it with a ConfigError.

A refusal has one form: `KEY=VALUE: what is wrong. Allowed: ... Next: what to type`. Import the modules one by one.
"""
