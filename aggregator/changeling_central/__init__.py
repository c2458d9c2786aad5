"""A trusted curator's mechanisms: counts of a changing database, published continually."""
