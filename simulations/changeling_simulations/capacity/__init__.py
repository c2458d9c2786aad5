"""How many machines a survey takes: processor time, bytes and memory from devices, plan and retention.

`costs` has what one upload costs at each stage, as measured; `demand` what a survey asks of a day; `sizing` multiplies
them into machines and money; `day` goes through a day minute by minute, with a region that is lost.
"""
