"""MLflow: the tracking server, and the mirror of run folders to it.

Two rooms: `server` and `mirror`.
"""
