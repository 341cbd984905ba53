"""Algorithms, schedules and codes of a program's own, written in Python."""
