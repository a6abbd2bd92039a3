"""Datasets, one module or package each, and their parts: order, decoding, prefetching, cropping.

`loading.types` defines the interface of a dataset. A dataset does not depend on a model: the model passes a view, which
says how it wants its images cropped.
"""
