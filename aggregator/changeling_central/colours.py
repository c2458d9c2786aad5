"""The colours of this package's pictures, told apart by the colour-blind too (Okabe, Ito 2008)."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
