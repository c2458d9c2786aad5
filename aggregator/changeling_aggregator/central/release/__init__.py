"""A release as a curator runs it: from a changelog, period by period, to rows on disk and a picture."""
