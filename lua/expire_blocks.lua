--[[
expire_blocks: drain the bucket of blocks that expires, some blocks per call: of each block,
trees whose checksum is zero are acked, all others are nacked.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  blocks    how many to take at most, 1..100; it stops early after some 16,000 trees

Reply    {acked, nacked, blocks left to drain}; drained is 0 left
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
local shard, meta = KEYS[1], KEYS[2]
local MAX_TREES = 4 * 4095
local ZERO = '\0\0\0\0\0\0\0\0'
local call, sub, find, format = redis.call, string.sub, string.find, string.format

local function refuse(code, words)
  return redis.error_reply('ACKER ' .. code .. ' ' .. words)
end

local namespace = string.match(shard or '', '^acker:{([A-Za-z0-9_.-]+):[0-9]+}$')
if #KEYS ~= 2 or #ARGV ~= 1 or not namespace or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'two keys, acker:{<namespace>:<shard>} and the same with :meta, and one '
    .. 'argument are needed')
end
local count = find(ARGV[1], '^[1-9][0-9]*$') and tonumber(ARGV[1])
if not count or count > 100 then return refuse('ARGS', 'blocks is 1 to 100') end
local conf = call('HMGET', meta, 'schema', 'blocks_cursor', 'publish')
if not conf[1] then return refuse('NAMESPACE', 'not created: ' .. shard) end
if conf[1] ~= '1' then
  return refuse('SCHEMA', 'this script knows schema 1, the namespace has another')
end
local expiring = shard .. ':blocks_expiring'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Numbers of slots as JSON, ascending.
local function list(slots)
  return '[' .. table.concat(slots, ',') .. ']'
end

-- The cursor goes on where the last call stopped: from 0 each time, a scan must walk over all
-- that was emptied before.
local page = call('HSCAN', expiring, conf[2] or '0', 'COUNT', count)
local blocks, trees, stopped, waiting = {}, 0, false, {}
for i = 1, #page[2], 2 do
  if trees >= MAX_TREES or #blocks >= count then
    stopped = true
    break
  end
  local id, header = page[2][i], page[2][i + 1]
  local first, slots, _, task, at = struct.unpack('>I6I2c8Bc0', header)
  local high, low = struct.unpack('>I4I4', id)
  local name = format('%05x%08x', high, low)
  local block = { id = id, slots = slots, task = task, label = sub(header, at), name = name,
    key = shard .. ':block:' .. name, failed_key = shard .. ':failed:' .. name,
    age = format('%.0f', math.max(0, now - first)) }
  local checksums = call('GET', block.key)
  local stream = shard .. ':outcomes:' .. task
  if not waiting[task] then
    local kind = call('TYPE', stream).ok
    waiting[task] = (kind == 'stream' or kind == 'none')
      and tonumber(call('HGET', meta, 'backlog:' .. task) or 0)
  end
  if not checksums or #checksums ~= 8 * slots then
    return refuse('SCHEMA', block.key .. ' has been tampered with')
  elseif not waiting[task] then
    return refuse('SCHEMA', stream .. ' or its backlog has been tampered with')
  end
  local has_failed, failed, nacked = {}, {}, {}
  for _, slot in ipairs(call('HKEYS', block.failed_key)) do
    has_failed[tonumber(slot)] = true
    failed[#failed + 1] = tonumber(slot)
  end
  table.sort(failed)
  local sums = { struct.unpack(string.rep('c8', slots), checksums) }
  for slot = 0, slots - 1 do
    if sums[slot + 1] ~= ZERO and not has_failed[slot] then nacked[#nacked + 1] = slot end
  end
  block.failed, block.failed_count = list(failed), #failed
  block.nacked, block.nacked_count = list(nacked), #nacked
  blocks[#blocks + 1], trees = block, trees + slots
end

-- The first write is one that maxmemory does not refuse, and all others pass with it. Verdicts
-- come before their blocks go: if a write raised, a tree would have two, and never none.
call('UNLINK', shard)
local acked, nacked = 0, 0
for _, block in ipairs(blocks) do
  block.n = block.slots - block.failed_count
  if block.n > 0 then
    call('XADD', shard .. ':outcomes:' .. block.task, '*', 'verdict', 'mixed', 'reason', 'expired',
      'n', block.n, 'block', block.name, 'label', block.label, 'age', block.age, 'slots',
      block.slots, 'nacked', block.nacked, 'failed', block.failed)
    waiting[block.task] = waiting[block.task] + block.n
  end
  acked, nacked = acked + block.n - block.nacked_count, nacked + block.nacked_count
end
for _, block in ipairs(blocks) do
  call('UNLINK', block.key, block.failed_key)
  call('HDEL', expiring, block.id)
end
for task, backlog in pairs(waiting) do call('HSET', meta, 'backlog:' .. task, backlog) end
for _, block in ipairs(blocks) do
  if conf[3] == 'yes' and block.n > 0 then
    -- A rotator without the right to publish loses the live feed, never the record.
    redis.pcall('PUBLISH', 'acker:' .. namespace .. ':mixed:' .. block.task,
      format('{"verdict":"mixed","reason":"expired","n":%d,"block":"%s","label":"%s","age":%s,'
        .. '"slots":%d,"nacked":', block.n, block.name,
        string.gsub(block.label, '["\\]', '\\%0'), block.age, block.slots)
        .. block.nacked .. ',"failed":' .. block.failed .. '}')
  end
end
if acked > 0 then call('HINCRBY', meta, 'acked', acked) end
if nacked > 0 then call('HINCRBY', meta, 'expired', nacked) end
if not stopped then
  -- A page that was not taken whole is read again.
  call('HSET', meta, 'blocks_cursor', page[1])
end
return { acked, nacked, call('HLEN', expiring) }
