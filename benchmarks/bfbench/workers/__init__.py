"""Programs that run as ranks, and what they alone stand on."""
