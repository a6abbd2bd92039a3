"""Files of a data set: which there are, and how large an image may be."""
