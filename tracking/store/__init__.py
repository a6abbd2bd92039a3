"""MLflow: the tracking server (`server`), and the mirror of run folders to it (`mirror`). No worker imports them."""
