"""Recorded runs: read back, compared, reported, scored and audited. Rooms from `results` to `audit`."""
