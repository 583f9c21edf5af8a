"""Measurement of kernels on a GPU beside the libraries that others use, with raw samples."""
