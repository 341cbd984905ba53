"""Helpers that the scripts beside this folder share."""
