"""From samples to batches: their types, order, prefetching and version."""
