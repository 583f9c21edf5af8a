"""Kernel templates, as package data."""
