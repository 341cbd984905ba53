"""Words that other programs say of themselves."""

import subprocess


def words_of(*command):
    """The output of a command, or nothing where there is no such command."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def first_line(*command):
    return (words_of(*command).splitlines() or ["not found"])[0]
