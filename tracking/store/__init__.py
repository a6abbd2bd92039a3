"""MLflow: the tracking server (`server`), and the mirror of run folders to it (`mirror`). The worker imports neither."""
