"""How many machines a survey takes: processor time, bytes and memory from devices, plan and retention.

`costs` has the form of what an upload costs at each stage, `measured` the figures; `demand` what a survey asks of a
day; `design` where the log lies and who folds it; `sizing` multiplies them into machines and money; `day` goes through
a day minute by minute, with a region that is lost.
"""
