"""Files of a dataset: lists them, opens them, and limits the size of images."""
