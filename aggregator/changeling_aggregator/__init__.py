"""The aggregation server: surveys and keys out, sealed uploads in, histograms out."""
