"""From tallies to histograms: randomizers' decoders, estimation, planning, accounting, changelogs from files."""
