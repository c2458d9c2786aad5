"""From tallies to histograms with their covariances. Pure functions: no HTTP, no store, no clock."""
