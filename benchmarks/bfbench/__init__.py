"""bfbench: measures bluefog_cpp, its peers and the machine's limits side by side."""

INTERRUPTED = 130  # what a command ends with that Ctrl-C ended
