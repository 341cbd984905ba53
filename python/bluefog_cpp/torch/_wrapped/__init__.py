"""The parts of a wrapped optimizer: what it watches, shares with the plain one, is steered by."""
