--[[
expire_blocks: drain the expiring bucket of blocks, some blocks per call. In each block, trees
with checksum zero are acked and all others are nacked. If a block has lost its checksums, or a
bitmap of it is lost or damaged, all its trees are nacked.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  blocks    at most how many to drain, 1..100; stops early after some 8,000 open trees

Reply    {acked, nacked, blocks left to drain}; 0 left: the bucket is drained
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
-- part: begin
local MAX_TREES = 16 * 1024
local ZERO = '\0\0\0\0\0\0\0\0'
local sub, find, format = string.sub, string.find, string.format
local unpack_bytes, hex = struct.unpack, bit.tohex

-- part: keys
if #ARGV ~= 1 then return refuse('ARGS', 'needs two keys and one argument') end
local count = find(ARGV[1], '^[1-9][0-9]*$') and tonumber(ARGV[1])
if not count or count > 100 then return refuse('ARGS', 'blocks must be 1 to 100') end
local conf = call('HMGET', meta, 'schema', 'blocks_cursor', 'publish', 'edges', 'slo_ms',
  'salt')
-- part: schema
local expiring = shard .. ':blocks_expiring'
-- part: clock
local conf_edges = conf[4] or ''
-- part: odd
local conf_salt = conf[6]
-- part: feed
-- part: escape

-- part: bitmaps

-- Continue from the cursor of the last call: a scan from 0 would pass all the entries that
-- earlier calls have deleted.
local page = call('HSCAN', expiring, conf[2] or '0', 'COUNT', count)
local blocks, gone, trees, stopped, waiting = {}, {}, 0, false, {}

-- Return the bytes of a key; nil if it does not exist, and '' if it holds anything but a string.
local function bytes_of(key)
  local kind = call('TYPE', key).ok
  if kind == 'none' then return nil end
  return kind == 'string' and call('GET', key) or ''
end

-- Find the failed and the open trees of a block. If a key that it needs is lost or damaged, all
-- trees that are not known to have failed are open; without its present slots, all slots are.
local function weigh(block)
  local bytes = width(block.slots)
  local checksums = bytes_of(block.key)
  local present = block.partial and bytes_of(block.present_key) or ''
  local failed = bytes_of(block.failed_key)
  local lost = not checksums or #checksums ~= 8 * block.slots
  if block.partial and not is_bitmap(present, block.slots, '') then present, lost = '', true end
  if (failed or block.has_failed) and not is_bitmap(failed, block.slots, present) then
    failed, lost = nil, true
  end
  if present == '' then present = nil end
  local sums = lost and {} or { unpack_bytes(string.rep('c8', block.slots), checksums) }
  local open, odd = {}, {}
  for slot = 0, block.slots - 1 do
    if sums[slot + 1] ~= ZERO and not (failed and has(failed, slot))
      and not (present and not has(present, slot)) then
      open[#open + 1] = slot
      -- Of a block that has lost a key nothing is known; zeros say so, because no nack has them.
      local high, low = 0, 0
      if sums[slot + 1] then
        high, low = unpack_bytes('>I4I4', sums[slot + 1])
        see(high)
      end
      odd[#open] = hex(high) .. hex(low)
    end
  end
  block.trees = present and ones(present) or block.slots
  block.failed_count, block.nacked_count = failed and ones(failed) or 0, #open
  block.failed, block.nacked = to_hex(failed or ''), to_hex(with(nil, open, bytes))
  block.present, block.residuals = present and to_hex(present) or '', table.concat(odd)
end

for i = 1, #page[2], 2 do
  local id, header = page[2][i], page[2][i + 1]
  -- A tree that failed or expires counts twice, because it is twice the work.
  local most = #header > 12 and 2 * struct.unpack('>I2', sub(header, 12, 13)) or 0
  if #gone >= count or (trees > 0 and trees + most > MAX_TREES) then
    stopped = true
    break
  end
  gone[#gone + 1] = id
  -- An entry that is not a valid header has no trees. It must not stop the drain of the others.
  local task_length = #id == 8 and string.byte(header, 22) or 0
  if task_length > 0 and #header > 22 + task_length then
    local first, last, state, slots, _, task, at = struct.unpack('>I6I4BI2c8Bc0', header)
    local name = format('%05x%08x', struct.unpack('>I4I4', id))
    local block = { first = first, slots = slots, task = task, label = sub(header, at), name = name,
      key = shard .. ':block:' .. name, failed_key = shard .. ':failed:' .. name,
      present_key = shard .. ':present:' .. name, partial = band(state, 2) > 0,
      has_failed = band(state, 4) > 0,
      age = format('%.0f', math.max(0, now - first)),
      idle = format('%.0f', math.max(0, now - first - last)),
      cause = band(state, 1) > 0 and 'deadline' or 'idle' }
    local stream = shard .. ':outcomes:' .. task
    if not waiting[task] then
      local kind = call('TYPE', stream).ok
      local backlog, ended, good = unpack(call('HMGET', meta, 'backlog:' .. task,
        'ended:' .. task, 'good:' .. task))
      waiting[task] = { number = (kind == 'stream' or kind == 'none') and tonumber(backlog or 0),
        ended = tonumber(ended) or 0, good = tonumber(good) or 0 }
    end
    if not waiting[task].number then
      return refuse('SCHEMA', stream .. ' or its backlog has been tampered with')
    end
    weigh(block)
    blocks[#blocks + 1] = block
    trees = trees + slots + block.failed_count + block.nacked_count
  end
end

-- maxmemory does not refuse this first write, and the later ones are not checked. Verdicts are
-- written before their blocks are deleted: if a write raised an error, a tree could get two
-- verdicts, but never none.
call('UNLINK', shard)
local acked, nacked, completed, slow = 0, 0, {}, 0
local slo_ms = tonumber(conf[5]) or 0
for _, block in ipairs(blocks) do
  local source = waiting[block.task]
  block.n = block.trees - block.failed_count
  if block.n > 0 then
    local more = { 'cause', block.cause, 'idle', block.idle, 'slots', block.slots, 'nacked',
      block.nacked, 'failed', block.failed, 'residuals', block.residuals }
    if block.present ~= '' then more[13], more[14] = 'present', block.present end
    call('XADD', shard .. ':outcomes:' .. block.task, '*', 'verdict', 'mixed', 'reason', 'expired',
      'n', block.n, 'block', block.name, 'label', block.label, 'age', block.age, unpack(more))
    source.number, source.ended = source.number + block.n, source.ended + block.n
  end
  local done = block.n - block.nacked_count
  if slo_ms > 0 and now - block.first > slo_ms then
    slow = slow + done
  else
    source.good = source.good + done
  end
  acked, nacked = acked + done, nacked + block.nacked_count
  if done > 0 then completed[block.first] = (completed[block.first] or 0) + done end
end
for _, block in ipairs(blocks) do
  -- A scratch key exists only if a producer that lacks a right has left it.
  call('UNLINK', block.key, block.failed_key, block.present_key, shard .. ':scratch:' .. block.name)
end
if #gone > 0 then call('HDEL', expiring, unpack(gone)) end
for task, source in pairs(waiting) do
  call('HSET', meta, 'backlog:' .. task, source.number, 'ended:' .. task, source.ended,
    'good:' .. task, source.good)
end
for _, block in ipairs(blocks) do
  if conf[3] == 'yes' and block.n > 0 then
    publish('mixed', block.task,
      format('{"verdict":"mixed","reason":"expired","n":%d,"block":"%s","label":"%s","age":%s,'
        .. '"cause":"%s","idle":%s,"slots":%d,"nacked":"', block.n, block.name,
        escape(block.label), block.age, block.cause, block.idle, block.slots),
      block.nacked .. '","failed":"' .. block.failed .. '","residuals":"' .. block.residuals
        .. (block.present ~= '' and '","present":"' .. block.present or '') .. '"')
  end
end
if acked > 0 then call('HINCRBY', meta, 'acked', acked) end
if slow > 0 then call('HINCRBY', meta, 'slow', slow) end
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
