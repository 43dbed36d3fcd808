--[[
apply_blocks: XOR deltas into the checksums of whole blocks of tuple trees; all or nothing.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  producer  name of the producer's lane, up to MAX_PRODUCER bytes; '' = no fence; a name that
                   begins with '@' is a durable lane: its fence outlives the buckets
ARGV[2]  fence     '<seq>' or '<seq>:<digest>': seq [1-9][0-9]{0,14}, digest up to 32 hex
                   digits; '' when there is no producer
ARGV[3+] blocks    seven arguments for each of 1 to MAX_BLOCKS blocks, no duplicates; MAX_CALL
                   bytes in all:
         flags     one byte: sum of 1 TRACK and 4 TOUCH; 0 for neither
         block     8 bytes, big-endian, 0..2^50-1
         header    of a TRACK: slots n, 2 bytes, big-endian, 1..MAX_SLOTS; length of the task, one
                   byte; task, [A-Za-z0-9_.-]{1,64}; label, 1..MAX_TEXT bytes of UTF-8 without
                   control bytes; without TRACK ''
         present   of a TRACK: '' = each slot holds a tree; or a bitmap of those that do,
                   ceil(n/8) bytes, bit 7 of byte 0 is slot 0, at least one; without TRACK ''
         slots     '' = deltas of slots 0, 1, ..; or 2 bytes each, big-endian, ascending
         deltas    8 bytes each, big-endian; of a TRACK 8n, 0 for a slot without a tree, and for
                   a tree without messages; at most MAX_SLOTS, or '' for none
         failed    for each tree that fails: slot, 2 bytes, ascending; length of the why, one
                   byte; why, 0..MAX_TEXT bytes of UTF-8 without control bytes; or '' for none

Reply    {1, tracked, acked, failed, rejected, pending, high_water, blocks}
         counted in trees; failed: nacks of this call, rejected trees excluded; pending,
         high_water: of this shard; blocks: numbers of the rejected blocks of this call, from
         0, 2 bytes each, big-endian
         {0, highest}: a repeat, nothing was applied; highest: last seq of the lane, a string
Errors   ACKER ARGS | NAMESPACE | SCHEMA | SHARD | CONFLICT | FENCE | BACKLOG <words>;
         nothing was changed
--]]
-- A block of this call is an item, a table. The steps of this script set its fields:
--
--   step      field                        holds
--   blocks    number, id, name             its place in this call, from 1; 8 bytes; 13 hex digits
--             track, touch                 its flags
--             deltas, at                   its column; the slots of it, nil if they are 0, 1, ..
--             failed                       slots and whys of trees that fail, or nil
--             slots, task, label,          of a TRACK: its header; the bitmap of present slots, or
--             present, trees               '' for all; the number of trees
--   headers   header, bucket               of a block that is pending: as stored; nil of any other
--   known     is_new                       a TRACK, and not pending
--             key                          of its checksums; nil if not pending and no TRACK
--             slots .. trees, first, last  as above, and times; now from the header, if pending
--             to, capped                   its bucket after this call; the deadline's mark
--             has_failed, before,          of a pending block: the header announces failures; the
--             failed_before                bitmap of failed trees, or nil, and their number
--             expires                      a block of this number is expiring
--             stale                        an ended block of this number has left bitmaps
--   decide    rejected                     'conflict' or 'overflow': the block is not created
--             failures                     those of failed that are new
--   weigh     result                       key of the new checksums, nil if they are as before
--             done                         all checksums are zero: the block ends
--   tell      after                        the bitmap of failed trees, if it has grown
-- part: begin
local producer, fence = ARGV[1], ARGV[2]

-- A value of this length makes Redis store a hash as a table. In a listpack each lookup is linear.
local LONG = string.rep(' ', 1024)
local byte, sub, find = string.byte, string.sub, string.find
local pack, unpack_bytes, format = struct.pack, struct.unpack, string.format

-- Validation: nothing is written before the whole batch has been validated.

-- part: keys
if #ARGV < 9 or #ARGV % 7 ~= 2 then
  return refuse('ARGS', 'needs two keys, two arguments, and seven for each of its blocks')
end
local conf = call('HMGET', meta, 'schema', 'shard', 'shards', 'buckets', 'current', 'high_water',
  'refresh', 'outcomes_limit', 'publish', 'slots', 'tasks', 'reshard', 'ticks', 'deadline_ms',
  'tick_ms', 'ticked_ms', 'slo_ms', 'salt')
-- part: schema
-- part: limits
-- part: ring

-- part: text
-- part: escape
-- part: bitmaps

-- part: blocks

-- part: clock
-- part: fence
local conf_deadline, conf_tick, conf_ticked = conf[14], conf[15], conf[16]
local conf_salt = conf[18]
-- part: feed
-- part: deadline

-- part: headers
local reshard, ticks = conf[12], conf[13] or '0'
-- part: known

-- Decide what to write for each block; nothing is written yet. The first line that applies:
--
--   block       row       effect
--   pending     TRACK     a repeat: only its failures and its TOUCH count
--   pending     any       its deltas and failures count
--   expiring    TRACK     nack, conflict, of all its trees: it still uses the keys of this number
--   none        TRACK     nack, overflow, of all its trees, if pending would be above twice
--                         high_water; otherwise the block is created
--   any other   any       dropped: each delta and failure counts as orphaned
--
-- The last line is also for slots that a block does not have, and for failures of absent slots.
-- Whether a block ends is known only when its deltas are applied: see weigh, below.

local tracked, acked, failed, overflow, conflict, orphaned = 0, 0, 0, 0, 0, 0
local created, rejected, work, entries, completed, slow = 0, {}, {}, {}, {}, 0
local slo_ms = tonumber(conf[17]) or 0

-- Return the failures of slots that have not failed before.
local function new_failures(item)
  local slots, whys = {}, {}
  for k, slot in ipairs(item.failed.slots) do
    if slot >= item.slots or (item.present ~= '' and not has(item.present, slot)) then
      orphaned = orphaned + 1
    elseif not item.before or not has(item.before, slot) then
      slots[#slots + 1], whys[#whys + 1] = slot, item.failed.whys[k]
    end
  end
  return { slots = slots, whys = whys }
end

for _, item in ipairs(items) do
  if item.is_new and item.expires then
    item.rejected, conflict = 'conflict', conflict + item.trees
  elseif item.is_new and pending + item.slots > 2 * high_water then
    item.rejected, overflow = 'overflow', overflow + item.trees
  elseif item.is_new then
    tracked, created, pending = tracked + item.trees, created + 1, pending + item.slots
  elseif item.track then
    item.deltas = ''
  elseif not item.header then
    orphaned = orphaned + #item.deltas / 8 + (item.failed and #item.failed.slots or 0)
  end
  if item.key then work[#work + 1] = item end
  if item.rejected then
    rejected[#rejected + 1], tracked = pack('>I2', item.number - 1), tracked + item.trees
  elseif item.key then
    if #item.deltas > 8 * item.slots and not item.at then
      orphaned = orphaned + #item.deltas / 8 - item.slots
      item.deltas = sub(item.deltas, 1, 8 * item.slots)
    end
    if item.failed then item.failures = new_failures(item) end
  end
end

-- Write. Redis checks maxmemory at a script's first write only. A batch that creates blocks
-- begins with a write that Redis may refuse, any other batch with one that frees memory. The order:
-- new checksums into scratch keys, verdicts, fence, strings of blocks (SET, RENAME), headers, keys
-- that are removed, counts. Verdicts come before the new checksums replace the old ones: if a write
-- raised an error, a tree could get two verdicts, but never none.

if created == 0 then call('UNLINK', shard) end
-- part: weigh
local function entry(item, verdict, reason, n, more, json)
  entries[#entries + 1] = { item = item, verdict = verdict, reason = reason, n = n, json = json,
    more = more }
end

-- A verdict on all trees of a block, except those that have failed before.
local function entry_of_all(item, verdict, reason, n, failures_so_far)
  local more, json = { 'slots', item.slots }, ',"slots":' .. item.slots
  local function add(name, bitmap)
    more[#more + 1], more[#more + 2] = name, to_hex(bitmap)
    json = json .. ',"' .. name .. '":"' .. more[#more] .. '"'
  end
  if failures_so_far then add('failed', failures_so_far) end
  if item.present ~= '' then add('present', item.present) end
  entry(item, verdict, reason, n, more, json)
end

-- Collect the verdicts of a block that was not rejected.
local function tell(item)
  local new = item.failures and item.failures.slots or {}
  if #new > 0 then
    local rows = {}
    for k, slot in ipairs(new) do rows[k] = slot .. ',"' .. escape(item.failures.whys[k]) end
    failed, item.after = failed + #new, with(item.before, new, width(item.slots))
    local json = '[[' .. table.concat(rows, '"],[') .. '"]]'
    entry(item, 'nack', 'failed', #new, { 'rows', json }, ',"rows":' .. json)
  end
  if item.done then
    local first, failures_so_far = item.first, item.after or item.before or ''
    local left = item.trees - (item.failed_before or 0) - #new
    acked, pending = acked + left, pending - item.slots
    if left > 0 then
      completed[first] = (completed[first] or 0) + left
      entry_of_all(item, 'ack', 'completed', left, failures_so_far)
    end
  elseif item.touch and not (item.capped and item.to == item.bucket) then
    -- If the deadline leaves the block where it is, no clock was restarted.
    entry_of_all(item, 'touch', 'reset', item.trees)
  end
end

for _, item in ipairs(work) do
  if item.rejected then
    entry_of_all(item, 'nack', item.rejected, item.trees)
  else
    item.done = weigh(item)
    tell(item)
  end
end
for _, told in ipairs(entries) do
  local item, backlog = told.item, waiting[told.item.task]
  told.written = told.verdict ~= 'touch' or backlog.number < backlog_limit
  if told.verdict ~= 'touch' then backlog.ended = backlog.ended + told.n end
  if told.verdict == 'ack' then
    if slo_ms > 0 and now - item.first > slo_ms then
      slow = slow + told.n
    else
      backlog.good = backlog.good + told.n
    end
  end
  if told.written then
    backlog.number, backlog.told = backlog.number + told.n, true
    told.age = format('%.0f', math.max(0, now - item.first))
    call('XADD', shard .. ':outcomes:' .. item.task, '*', 'verdict', told.verdict, 'reason',
      told.reason, 'n', told.n, 'block', item.name, 'label', item.label, 'age', told.age,
      unpack(told.more))
  end
end
if fence_key then
  call('HSET', fence_key, producer, fence_value)
  if fence_old and fence_old ~= fence_key then call('HDEL', fence_old, producer) end
end
local moved, puts, drops, ended = {}, {}, {}, {}
for bucket = 0, buckets - 1 do moved[bucket], puts[bucket], drops[bucket] = 0, {}, {} end

local function leave(item)
  local home = item.bucket
  drops[home][#drops[home] + 1], moved[home] = item.id, moved[home] - item.slots
end

-- Collect the header of a block that stays, if it has to be written. A block remembers its last row
-- to within a tick: to write the header costs as much as a row.
local function put_header(item)
  local state = (item.capped and 1 or 0) + (item.present ~= '' and 2 or 0)
    + ((item.before or item.after) and 4 or 0)
  if item.header and item.to == item.bucket and state == byte(item.header, 11)
    and item.first + item.last >= tonumber(conf_ticked or 0) then
    return
  end
  local list = puts[item.to]
  list[#list + 1] = item.id
  list[#list + 1] = pack('>I6I4BI2', item.first, since(item.first), state, item.slots)
    .. (item.header and sub(item.header, 14)
      or sub(redis.sha1hex(item.deltas .. item.present), 1, 8) .. pack('>B', #item.task)
        .. item.task .. item.label)
  if item.to ~= item.bucket then
    moved[item.to], waiting[item.task].tracks = moved[item.to] + item.slots, true
    if item.header then leave(item) end
  end
end

for _, item in ipairs(work) do
  if item.done then
    -- It ends: collect its keys, which UNLINK then removes.
    if item.header then
      leave(item)
      ended[#ended + 1] = item.key
    end
    if item.before or item.stale then ended[#ended + 1] = failed_of .. item.name end
    if item.stale or (item.header and item.present ~= '') then
      ended[#ended + 1] = present_of .. item.name
    end
    if item.result then ended[#ended + 1] = item.result end
  elseif not item.rejected then
    -- It stays. Write the failures before the deltas: if only the deltas survived, for example in
    -- a log that was cut here, the failed trees would be acked.
    if item.stale then call('UNLINK', failed_of .. item.name, present_of .. item.name) end
    if item.after then call('SET', failed_of .. item.name, item.after) end
    if item.is_new then
      if item.present ~= '' then call('SET', present_of .. item.name, item.present) end
      call('SET', item.key, item.deltas)
    elseif item.result then
      call('RENAME', item.result, item.key)
    end
    put_header(item)
  end
end
for bucket = 0, buckets - 1 do
  local key, new = shard .. ':blocks:' .. bucket, sizes[bucket] == 0
  if #puts[bucket] > 0 then
    if new then
      -- As in apply.lua: a user without the right to HDEL must fail before the value is added.
      call('HDEL', key, '')
      call('HSET', key, '', LONG)
    end
    call('HSET', key, unpack(puts[bucket]))
    if new then call('HDEL', key, '') end
  end
end
if scratched then ended[#ended + 1] = scratch end
if #ended > 0 then call('UNLINK', unpack(ended)) end
for bucket = 0, buckets - 1 do
  if #drops[bucket] > 0 then call('HDEL', shard .. ':blocks:' .. bucket, unpack(drops[bucket])) end
end
local all = 0
for bucket, slots in pairs(moved) do
  if slots ~= 0 then call('HINCRBY', meta, 'slots:' .. bucket, slots) end
  all = all + slots
end
if all ~= 0 then call('HINCRBY', meta, 'slots', all) end
for task, backlog in pairs(waiting) do
  if backlog.new then call('HINCRBY', meta, 'tasks', 1) end
  if backlog.new or backlog.told then
    call('HSET', meta, 'backlog:' .. task, backlog.number, 'ended:' .. task, backlog.ended,
      'good:' .. task, backlog.good)
  end
  -- rotate forgets a task that has put no tree into a bucket for 100 ticks.
  if backlog.tracks and backlog.used ~= ticks then call('HSET', meta, 'used:' .. task, ticks) end
end
if conf[9] == 'yes' then
  for _, told in ipairs(entries) do
    if told.written then
      local item = told.item
      publish(told.verdict, item.task, '{"verdict":"' .. told.verdict .. '","reason":"'
        .. told.reason .. '","n":' .. told.n .. ',"block":"' .. item.name .. '","label":"'
        .. escape(item.label) .. '","age":' .. told.age, told.json)
    end
  end
end
for name, number in pairs({ tracked = tracked, acked = acked, failed = failed,
  overflow = overflow, conflict = conflict, orphaned = orphaned, slow = slow }) do
  if number > 0 then call('HINCRBY', meta, name, number) end
end
-- part: latency
return { 1, tracked, acked, failed, overflow + conflict, pending, high_water,
  table.concat(rejected) }
