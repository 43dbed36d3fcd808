--[[
status: return the sizes, configuration and counters of a shard; read-only.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV     none

Reply    {now ms, {pending records of bucket 0, 1, ..}, records and blocks left to drain,
         {fences of bucket 0, 1, ..}, durable fences, {field, value, ..} of meta}
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>
--]]
-- parts/begin.lua
-- Names that every script uses. Gives shard, meta, call, refuse.
local shard, meta = KEYS[1], KEYS[2]
local call = redis.call

local function refuse(code, words)
  return redis.error_reply('ACKER ' .. code .. ' ' .. words)
end

if #KEYS ~= 2 or #ARGV ~= 0 or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys (shard, shard:meta) and no arguments')
end
local conf = call('HMGET', meta, 'schema', 'buckets')
-- parts/schema.lua
-- Check that the namespace exists, with a schema that this script supports. Needs conf, whose first
-- field is the schema.
if not conf[1] then
  return refuse('NAMESPACE', 'not created: ' .. shard)
elseif conf[1] ~= '2' then
  return refuse('SCHEMA', 'this script supports schema 2 only, the namespace has another')
end
local pending, fences = {}, {}
for bucket = 0, conf[2] - 1 do
  pending[bucket + 1] = call('HLEN', shard .. ':pending:' .. bucket)
  fences[bucket + 1] = call('HLEN', shard .. ':fence:' .. bucket)
end
-- parts/clock.lua
-- The time on the clock of Redis. Gives now, in ms since 1970.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return { now, pending,
  call('HLEN', shard .. ':expiring') + call('HLEN', shard .. ':blocks_expiring'),
  fences, call('HLEN', shard .. ':fence:durable'), call('HGETALL', meta) }
