--[[
rotate: if a tick is due, make the oldest bucket the expiring one, forget idle tasks, and correct
the backlog of tasks whose stream is empty. Any number of rotators may call it: each tick happens
once, by the clock of Redis.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  force     1 = tick now, due or not; 0 = only if due

Reply    {rotated 0|1, ms until the next tick is due, records and blocks left to drain, late}
         late: delay of this tick in ms, from when it was due; 0 if nothing rotated
         nothing rotates before the expiring bucket has been drained (expire.lua)
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
-- part: begin
local DURABLE_MS = 30 * 24 * 3600 * 1000
local QUIET_TICKS, MAX_FORGOTTEN, MAX_ARGS = 100, 100, 1000

if #KEYS ~= 2 or #ARGV ~= 1 or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys (shard, shard:meta) and one argument')
elseif ARGV[1] ~= '0' and ARGV[1] ~= '1' then
  return refuse('ARGS', 'force must be 0 or 1')
end
local conf = call('HMGET', meta, 'schema', 'buckets', 'current', 'tick_ms', 'ticked_ms',
  'lanes_cursor', 'ticks', 'whole')
-- part: schema
local conf_buckets, conf_current, tick_ms = conf[2], conf[3], tonumber(conf[4])
local conf_whole = conf[8]
-- part: ring
-- part: fields
-- From lua/spec.json, by python -m proof.spec
local MIN_TICK_MS, MAX_TICK_MS = 1, 1e12

if not tick_ms or not (tick_ms >= MIN_TICK_MS and tick_ms <= MAX_TICK_MS) then
  return refuse('SCHEMA', meta .. ' has been tampered with: tick_ms')
end
-- A time that no script writes is corrected like one after which the clock went back.
local ticked_ms = string.match(conf[5] or '', '^%d+$') and tonumber(conf[5]) or math.huge
-- part: clock
local expiring, blocks_expiring = shard .. ':expiring', shard .. ':blocks_expiring'
local left = call('HLEN', expiring) + call('HLEN', blocks_expiring)

-- A forced tick may come early.
local late = math.max(0, now - ticked_ms - tick_ms)
local due = now >= ticked_ms + tick_ms or ARGV[1] == '1'
if now < ticked_ms and ARGV[1] ~= '1' then
  -- The clock went back. It could take hours to reach the old time again, so restart the tick.
  call('UNLINK', shard) -- a first write that maxmemory does not refuse
  call('HSET', meta, 'ticked_ms', string.format('%.0f', now))
  return { 0, tick_ms, left, 0 }
elseif not due or left > 0 then
  return { 0, math.max(0, ticked_ms + tick_ms - now), left, 0 }
end

-- Durable fences expire by age. Each tick checks only some of them, so that a tick stays short.
-- All reads that can raise an error come before the first write.
local lanes, aged = shard .. ':fence:durable', {}
local page = call('HSCAN', lanes, conf[6] or '0', 'COUNT', 100)
for i = 1, #page[2], 2 do
  local used = string.match(page[2][i + 1], ':(%d+)$')
  if used and now - used > DURABLE_MS then aged[#aged + 1] = page[2][i] end
end
-- A task without verdicts is forgotten QUIET_TICKS after its last use. By then all buckets of that
-- time have expired, and with them all its trees. An older client does not record the use: its
-- tasks count as used now. If a task that has a tree is forgotten, its next verdict restores it.
local ticks = #(conf[7] or '') <= 15 and string.match(conf[7] or '', '^%d+$')
ticks = ticks and tonumber(ticks) or 0
local tasks, used, changed, forgotten = {}, {}, {}, {}
local unfinished = {}
local fields, names = call('HGETALL', meta), 0
for i = 1, #fields, 2 do
  local kind, task = string.match(fields[i], '^(%l+):(.+)$')
  if kind == 'backlog' then
    tasks[task], names = fields[i + 1], names + 1
  elseif kind == 'used' then
    used[task] = tonumber(fields[i + 1])
  elseif kind == 'unfinished' then
    unfinished[task] = tonumber(fields[i + 1])
  end
end
-- If a client deletes a stream, its backlog count remains. No source takes from an empty stream,
-- so the count would remain for ever, and a full backlog would refuse every TRACK.
for task, backlog in pairs(tasks) do
  local idle = used[task] and ticks - used[task] >= QUIET_TICKS and #forgotten < MAX_FORGOTTEN
  -- A rotator without the right to XLEN still ticks; it forgets no task and corrects no count.
  local empty = (idle or backlog ~= '0')
    and redis.pcall('XLEN', shard .. ':outcomes:' .. task) == 0
  if empty and backlog ~= '0' then
    if #changed < MAX_ARGS then
      changed[#changed + 1], changed[#changed + 2] = 'backlog:' .. task, '0'
    end
  elseif empty then
    forgotten[#forgotten + 1] = task
  end
  if not used[task] and #changed < MAX_ARGS then
    changed[#changed + 1], changed[#changed + 2] = 'used:' .. task, string.format('%.0f', ticks)
  end
end
local oldest = (current + 1) % buckets
local pending, blocks = shard .. ':pending:' .. oldest, shard .. ':blocks:' .. oldest
local records, block_count = call('HLEN', pending), call('HLEN', blocks)
local slots = tonumber(call('HGET', meta, 'slots:' .. oldest) or 0) or 0
-- Late rows of a tree that failed are in the bucket of that time, or in the next one.
local failing, rest = unfinished[tostring(oldest)] or 0, unfinished.left or 0
if failing > 0 or rest > 0 then
  rest = failing + math.min(rest, unfinished.failing or 0)
  for name, count in pairs({ left = rest, failing = failing }) do
    local at = #changed
    changed[at + 1], changed[at + 2] = 'unfinished:' .. name, string.format('%.0f', count)
  end
end
-- part: whole
if whole then changed[#changed + 1], changed[#changed + 2] = 'whole', whole end

-- maxmemory does not refuse UNLINK, and the writes after it are not checked.
call('UNLINK', shard .. ':fence:' .. oldest)
if records > 0 then call('RENAME', pending, expiring) end
if block_count > 0 then
  call('RENAME', blocks, blocks_expiring)
  -- 0 - slots and not -slots: -0 would be sent as "-0", which Redis does not accept as an integer.
  call('HINCRBY', meta, 'slots', 0 - slots)
  call('HDEL', meta, 'slots:' .. oldest)
end
if failing > 0 then call('HDEL', meta, 'unfinished:' .. oldest) end
for _, lane in ipairs(aged) do call('HDEL', lanes, lane) end
for _, task in ipairs(forgotten) do
  call('UNLINK', shard .. ':outcomes:' .. task)
  call('HDEL', meta, 'backlog:' .. task, 'used:' .. task, 'ended:' .. task, 'good:' .. task)
end
if #changed > 0 then call('HSET', meta, unpack(changed)) end
call('HSET', meta, 'current', oldest, 'ticked_ms', string.format('%.0f', now), 'cursor', '0',
  'blocks_cursor', '0', 'lanes_cursor', page[1], 'late_ms', string.format('%.0f', late), 'ticks',
  string.format('%.0f', ticks + 1), 'tasks', names - #forgotten)
return { 1, tick_ms, records + block_count, late }
