"""What bfbench traffic measures, and what it makes of the ranks' records."""
