"""Datasets, a module or a package each, and what they are made of: order, decoding, prefetching, cutting.

`types` says what a dataset has to answer. A dataset knows no model: how one wants its images cut is given to it as a
view.
"""
