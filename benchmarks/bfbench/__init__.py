"""bfbench: measures bluefog_cpp, its peers and the machine's limits side by side."""
