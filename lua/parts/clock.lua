-- The time on the clock of Redis. Gives now, in ms since 1970.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
