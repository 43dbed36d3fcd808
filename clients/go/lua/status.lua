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
local conf = call('HMGET', meta, 'schema', 'buckets', 'current')
-- parts/schema.lua
-- Check that the namespace exists, with a schema that this script supports. Needs conf, whose first
-- field is the schema.
if not conf[1] then
  return refuse('NAMESPACE', 'not created: ' .. shard)
elseif conf[1] ~= '2' then
  return refuse('SCHEMA', 'this script supports schema 2 only, the namespace has another')
end
local conf_buckets, conf_current = conf[2], conf[3]
-- parts/ring.lua
-- The ring of buckets, over which scripts loop. Any producer can write meta, and a loop over a
-- billion buckets would stop Redis for all. Needs conf_buckets, conf_current. Gives buckets,
-- current.
-- From lua/spec.json, by python -m proof.spec
local MIN_BUCKETS, MAX_BUCKETS = 2, 16

local buckets, current = tonumber(conf_buckets), tonumber(conf_current)
if not buckets or buckets < MIN_BUCKETS or buckets > MAX_BUCKETS or buckets % 1 ~= 0
  or not current or current < 0 or current >= buckets or current % 1 ~= 0 then
  return refuse('SCHEMA', meta .. ' has been tampered with: buckets or current')
end
-- parts/fields.lua
-- Refuse a meta that is too large, before it is read whole: any producer can write it, and to read
-- millions of fields would stop Redis for all. A thousand sources have four fields each, the rest
-- are some hundred. Needs meta.
-- From lua/spec.json, by python -m proof.spec
local MAX_FIELDS = 10000

if call('HLEN', meta) > MAX_FIELDS then
  return refuse('SCHEMA', meta .. ' has been tampered with: more than ' .. MAX_FIELDS .. ' fields')
end
local pending, fences = {}, {}
for bucket = 0, buckets - 1 do
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
