"""Programs that measured the figures of docs/results. They are run by hand; each folder measures one part."""
