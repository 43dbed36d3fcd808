--[[
status: return the sizes, configuration and counters of a shard; read-only.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  reports   optional; reports = reply the reports of programs, too: see report.lua

Reply    {now ms, {pending records of bucket 0, 1, ..}, records and blocks left to drain,
         {fences of bucket 0, 1, ..}, durable fences, {field, value, ..} of meta,
         {program, report, ..}}
         report: <ms since 1970>:<text>; the last list only with the argument
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>
--]]
-- part: begin
if #KEYS ~= 2 or #ARGV > 1 or meta ~= shard .. ':meta'
  or (ARGV[1] or 'reports') ~= 'reports' then
  return refuse('ARGS', 'needs two keys (shard, shard:meta) and no argument, or reports')
end
local conf = call('HMGET', meta, 'schema', 'buckets', 'current')
-- part: schema
local conf_buckets, conf_current = conf[2], conf[3]
-- part: ring
-- part: fields
local pending, fences = {}, {}
for bucket = 0, buckets - 1 do
  pending[bucket + 1] = call('HLEN', shard .. ':pending:' .. bucket)
  fences[bucket + 1] = call('HLEN', shard .. ':fence:' .. bucket)
end
-- From lua/spec.json, by python -m proof.spec
local MAX_REPORTS = 64

local reports
if ARGV[1] then
  -- A damaged key has no reports, and the rest of the status is replied.
  local size = redis.pcall('HLEN', shard .. ':reports')
  reports = type(size) == 'number' and size <= MAX_REPORTS and call('HGETALL', shard .. ':reports')
    or {}
end
-- part: clock
return { now, pending,
  call('HLEN', shard .. ':expiring') + call('HLEN', shard .. ':blocks_expiring'),
  fences, call('HLEN', shard .. ':fence:durable'), call('HGETALL', meta), reports }
