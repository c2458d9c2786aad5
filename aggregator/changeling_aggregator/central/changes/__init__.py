"""Linear-query changes of a database, released node by node: DCR, HDCR, SWCR, their best estimates, the advisor."""
