"""The start of a rank: whose job it joins, over which store, and which processes are none."""
