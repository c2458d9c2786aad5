"""Load for a server that is the user's own: sealed envelopes of made-up devices, and what they must come to.

`devices` says what one device answers and `blocks` when; `garbage` makes what must be refused, `truth` adds up what is
expected. `sealing` makes all envelopes before the first is sent, in processes of its own; `sending` sends them, and
`segments` writes them to a folder instead. `server` asks whether a server may be sent them, and `comparison` whether
it counted what is expected.
"""
