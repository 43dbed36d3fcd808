--[[
report: keep the last report of a program about itself, for operators. No verdict depends on it.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta, of shard 0
ARGV[1]  program   1..MAX_NAME characters of A-Z a-z 0-9 _ . -; of a source, its name
ARGV[2]  text      1..MAX_REPORT bytes, which no script reads

Reply    1; 0: nothing was kept, because MAX_REPORTS others have reported within REPORT_MS
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
-- part: begin
-- From lua/spec.json, by python -m proof.spec
local MAX_NAME, MAX_REPORTS, MAX_REPORT, REPORT_MS = 64, 64, 4096, 180000

local program, text = ARGV[1], ARGV[2]
if #KEYS ~= 2 or #ARGV ~= 2 or meta ~= shard .. ':meta' or #program > MAX_NAME
  or not string.find(program, '^[A-Za-z0-9_.-]+$') or #text < 1 or #text > MAX_REPORT then
  return refuse('ARGS', 'needs two keys (shard, shard:meta), the name of a program, and a text of '
    .. '1 to ' .. MAX_REPORT .. ' bytes')
end
local conf = call('HMGET', meta, 'schema')
-- part: schema
-- part: clock
local reports = shard .. ':reports'
local oldest, least = nil, math.huge
if not call('HGET', reports, program) and call('HLEN', reports) >= MAX_REPORTS then
  local all = call('HGETALL', reports)
  for i = 1, #all, 2 do
    -- A time that no script writes, or of a clock that went back, is the oldest.
    local at = tonumber(string.match(all[i + 1], '^(%d+):') or 0)
    if at > now then at = 0 end
    if at < least then oldest, least = all[i], at end
  end
  if now - least < REPORT_MS then return 0 end
  call('HDEL', reports, oldest)
end
call('HSET', reports, program, string.format('%.0f:', now) .. text)
return 1
