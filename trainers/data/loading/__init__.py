"""From samples to batches: types, order, prefetching and version of the data."""
