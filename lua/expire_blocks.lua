--[[
expire_blocks: drain the expiring bucket of blocks, some blocks per call. In each block, trees
with checksum zero are acked and all others are nacked. If a block has lost its checksums, all its
trees are nacked.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  blocks    at most how many to drain, 1..100; the call stops early after some 16,000 trees

Reply    {acked, nacked, blocks left to drain}; 0 left: the bucket is drained
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
-- part: begin
local MAX_TREES = 4 * 4095
local ZERO = '\0\0\0\0\0\0\0\0'
local sub, find, format = string.sub, string.find, string.format
local unpack_bytes, hex = struct.unpack, bit.tohex

local namespace = string.match(shard or '', '^acker:{([A-Za-z0-9_.-]+):[0-9]+}$')
if #KEYS ~= 2 or #ARGV ~= 1 or not namespace or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys, acker:{<namespace>:<shard>} and the same with :meta, and '
    .. 'one argument')
end
local count = find(ARGV[1], '^[1-9][0-9]*$') and tonumber(ARGV[1])
if not count or count > 100 then return refuse('ARGS', 'blocks must be 1 to 100') end
local conf = call('HMGET', meta, 'schema', 'blocks_cursor', 'publish', 'edges')
-- part: schema
local expiring = shard .. ':blocks_expiring'
-- part: clock
local conf_edges = conf[4] or ''
-- part: odd
-- part: escape

-- Cache of numbers as strings for the whole call: formatting them per block is a third of the work.
local texts = {}

-- Return ascending slot numbers as a JSON array.
local function list(slots)
  for k = 1, #slots do
    local slot = slots[k]
    local text = texts[slot] or format('%d', slot)
    slots[k], texts[slot] = text, text
  end
  return '[' .. table.concat(slots, ',') .. ']'
end

-- Continue from the cursor of the last call: a scan from 0 would pass all the entries that
-- earlier calls have deleted.
local page = call('HSCAN', expiring, conf[2] or '0', 'COUNT', count)
local blocks, gone, trees, stopped, waiting = {}, {}, 0, false, {}

-- Find the failed and the open trees of a block; all trees are open if its keys cannot be read.
local function weigh(block)
  local has_failed, failed, nacked, sums, odd = {}, {}, {}, {}, {}
  local kind = call('TYPE', block.failed_key).ok
  if call('TYPE', block.key).ok == 'string' and (kind == 'hash' or kind == 'none') then
    for _, slot in ipairs(call('HKEYS', block.failed_key)) do
      has_failed[tonumber(slot) or -1] = true
    end
    local checksums = call('GET', block.key)
    if #checksums == 8 * block.slots then
      sums = { struct.unpack(string.rep('c8', block.slots), checksums) }
    end
  end
  for slot = 0, block.slots - 1 do
    if has_failed[slot] then
      failed[#failed + 1] = slot
    elseif sums[slot + 1] ~= ZERO then
      nacked[#nacked + 1] = slot
      -- Of a block without checksums nothing is known; zeros say so, because no nack has them.
      local high, low = 0, 0
      if sums[slot + 1] then
        high, low = unpack_bytes('>I4I4', sums[slot + 1])
        see(high)
      end
      odd[#nacked] = hex(high) .. hex(low)
    end
  end
  block.failed_count, block.nacked_count = #failed, #nacked
  block.failed, block.nacked, block.residuals = list(failed), list(nacked), table.concat(odd)
end

for i = 1, #page[2], 2 do
  if trees >= MAX_TREES or #gone >= count then
    stopped = true
    break
  end
  local id, header = page[2][i], page[2][i + 1]
  gone[#gone + 1] = id
  -- An entry that is not a valid header has no trees. It must not stop the drain of the others.
  local task_length = #id == 8 and string.byte(header, 22) or 0
  if task_length > 0 and #header > 22 + task_length then
    local first, last, state, slots, _, task, at = struct.unpack('>I6I4BI2c8Bc0', header)
    local name = format('%05x%08x', struct.unpack('>I4I4', id))
    local block = { first = first, slots = slots, task = task, label = sub(header, at), name = name,
      key = shard .. ':block:' .. name, failed_key = shard .. ':failed:' .. name,
      age = format('%.0f', math.max(0, now - first)),
      idle = format('%.0f', math.max(0, now - first - last)),
      cause = state > 0 and 'deadline' or 'idle' }
    local stream = shard .. ':outcomes:' .. task
    if not waiting[task] then
      local kind = call('TYPE', stream).ok
      waiting[task] = (kind == 'stream' or kind == 'none')
        and tonumber(call('HGET', meta, 'backlog:' .. task) or 0)
    end
    if not waiting[task] then
      return refuse('SCHEMA', stream .. ' or its backlog has been tampered with')
    end
    weigh(block)
    -- A tree that failed or expires counts twice, because it is twice the work.
    blocks[#blocks + 1] = block
    trees = trees + slots + block.failed_count + block.nacked_count
  end
end

-- maxmemory does not refuse this first write, and the later ones are not checked. Verdicts are
-- written before their blocks are deleted: if a write raised an error, a tree could get two
-- verdicts, but never none.
call('UNLINK', shard)
local acked, nacked, completed = 0, 0, {}
for _, block in ipairs(blocks) do
  block.n = block.slots - block.failed_count
  if block.n > 0 then
    call('XADD', shard .. ':outcomes:' .. block.task, '*', 'verdict', 'mixed', 'reason', 'expired',
      'n', block.n, 'block', block.name, 'label', block.label, 'age', block.age, 'cause',
      block.cause, 'idle', block.idle, 'slots', block.slots, 'nacked', block.nacked, 'failed',
      block.failed, 'residuals', block.residuals)
    waiting[block.task] = waiting[block.task] + block.n
  end
  local done = block.n - block.nacked_count
  acked, nacked = acked + done, nacked + block.nacked_count
  if done > 0 then completed[block.first] = (completed[block.first] or 0) + done end
end
for _, block in ipairs(blocks) do
  -- A scratch key exists only if a producer that lacks a right has left it.
  call('UNLINK', block.key, block.failed_key, shard .. ':scratch:' .. block.name)
end
if #gone > 0 then call('HDEL', expiring, unpack(gone)) end
for task, backlog in pairs(waiting) do call('HSET', meta, 'backlog:' .. task, backlog) end
for _, block in ipairs(blocks) do
  if conf[3] == 'yes' and block.n > 0 then
    -- A rotator without the right to PUBLISH loses the live feed only; the stream has the entry.
    redis.pcall('PUBLISH', 'acker:' .. namespace .. ':mixed:' .. block.task,
      format('{"verdict":"mixed","reason":"expired","n":%d,"block":"%s","label":"%s","age":%s,'
        .. '"cause":"%s","idle":%s,"slots":%d,"nacked":', block.n, block.name, escape(block.label),
        block.age, block.cause, block.idle, block.slots)
        .. block.nacked .. ',"failed":' .. block.failed .. ',"residuals":"' .. block.residuals
        .. '"}')
  end
end
if acked > 0 then call('HINCRBY', meta, 'acked', acked) end
if nacked > 0 then
  call('HINCRBY', meta, 'expired', nacked)
  count_odd()
end
-- part: latency
if not stopped then
  -- A page that was not processed whole is read again.
  call('HSET', meta, 'blocks_cursor', page[1])
end
return { acked, nacked, call('HLEN', expiring) }
