"""The aggregation server, estimation and planning."""
