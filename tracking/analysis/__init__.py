"""What recorded runs say: read back, compared, reported, scored and audited.

Seven rooms, from `results` to `audit`.
"""
