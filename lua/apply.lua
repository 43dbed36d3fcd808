--[[
apply: XOR a batch of rows into the checksums of their tuple trees; all or nothing.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  producer  name of the producer's lane, up to MAX_PRODUCER bytes; '' = no fence; a name that
                   begins with '@' is a durable lane: its fence outlives the buckets
ARGV[2]  fence     '<seq>' or '<seq>:<digest>': seq [1-9][0-9]{0,14}, digest up to 32 hex
                   digits; '' when there is no producer
ARGV[3]  flags     n bytes, one per row: sum of 1 TRACK, 2 FAIL, 4 TOUCH; n is 1..MAX_ROWS
ARGV[4]  anchors   8n bytes, big-endian, 1..2^62-1, no duplicates
ARGV[5]  deltas    8n bytes, big-endian, 0..2^63-1
ARGV[6]  task      source of the TRACK rows, [A-Za-z0-9_.-]{1,64}; '' if no row has TRACK
ARGV[7+] texts     the source id of each TRACK row, then the why of each FAIL row, in row order;
                   up to MAX_TEXT bytes of UTF-8 without control bytes, MAX_TEXTS in all

Reply    {1, tracked, acked, failed, rejected, pending, high_water, rows}
         failed: nacks of this call, rejected rows excluded; pending, high_water: of this
         shard; rows: numbers of the rejected TRACK rows, from 0, 2 bytes each, big-endian
         {0, highest}: a repeat, nothing was applied; highest: last seq of the lane, a string
Errors   ACKER ARGS | NAMESPACE | SCHEMA | SHARD | CONFLICT | FENCE | BACKLOG <words>;
         nothing was changed
--]]
-- part: begin
local producer, fence, flags, anchors, deltas, task =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- A value of this length makes Redis store a hash as a table. In a listpack each lookup is linear.
local LONG = string.rep(' ', 1024)
local byte, sub, find = string.byte, string.sub, string.find
local pack, unpack_bytes, xor, hex = struct.pack, struct.unpack, bit.bxor, bit.tohex

-- Validation: nothing is written before the whole batch has been validated.

local namespace = string.match(shard or '', '^acker:{([A-Za-z0-9_.-]+):[0-9]+}$')
if #KEYS ~= 2 or #ARGV < 6 or not namespace or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys, acker:{<namespace>:<shard>} and the same with :meta, and '
    .. 'at least six arguments')
end
local conf = call('HMGET', meta, 'schema', 'shard', 'shards', 'buckets', 'current', 'high_water',
  'refresh', 'outcomes_limit', 'publish', 'backlog:' .. task, 'tasks', 'slots', 'reshard',
  'ticks', 'deadline_ms', 'tick_ms', 'ticked_ms', 'slo_ms', 'salt')
-- part: schema
-- part: limits
-- part: ring

-- part: text
-- part: escape
-- part: rows

-- part: clock
-- part: fence

-- part: records
local conf_deadline, conf_tick, conf_ticked, conf_salt = conf[15], conf[16], conf[17], conf[19]
-- part: deadline
-- part: feed
-- While the namespace is resharding, no shard accepts a new tree.
local reshard = conf[13]
if tracks > 0 and reshard then
  return refuse('BACKLOG', 'the namespace is resharding to '
    .. tostring(string.match(reshard, ':(%d+)'))
    .. ' shards; no tree is tracked until that ends, try again later')
elseif tracks > 0 and tonumber(conf[10] or 0) >= backlog_limit then
  return refuse('BACKLOG', 'task ' .. task .. ' has ' .. conf[10]
    .. ' verdicts waiting to be taken; its source must read and take its outcomes')
end
-- Sources of the trees that this batch puts into the newest bucket. rotate must not forget them.
local ticks, used = conf[14] or '0', {}
if tracks > 0 then used[task] = true end

-- Decide row by row what to write; nothing is written yet. A list keeps its length in n, because
-- Lua's # operator searches for the end of a list.

local puts, drops = {}, {}
for bucket = 0, buckets - 1 do puts[bucket], drops[bucket] = { n = 0 }, { n = 0 } end
local groups, group_of, ages, completed = {}, {}, {}, {}
local tracked, acked, failed, overflow, conflict, orphaned = 0, 0, 0, 0, 0, 0
local created, rejected, slow, unfinished = 0, {}, 0, 0
-- An acked tree whose first row is older is not good; with slo_ms 0 each one is.
local slo_ms = tonumber(conf[18]) or 0
local oldest = slo_ms > 0 and now - slo_ms or 0
local next_source, next_why = 7, 7 + tracks
-- The bytes between checksum and source id in the record of a new tree.
local begun = pack('>BI6I4B', 0, now, 0, #task) .. task
-- Flags and times of a record that stays, by its flags and the time of its first row. Trees that
-- were tracked together share them.
local times = {}

local function put(bucket, r, value)
  local list = puts[bucket]
  local count = list.n + 2
  list[count - 1], list[count], list.n = ids[r], value, count
end

local function drop(bucket, r)
  local list = drops[bucket]
  local count = list.n + 1
  list[count], list.n = ids[r], count
end

-- Source id and why are stored escaped (parts/escape.lua).
local function verdict(name, reason, owner, r, first, source_id, why)
  local by_owner = group_of[reason]
  if not by_owner then
    by_owner = {}
    group_of[reason] = by_owner
  end
  local group = by_owner[owner]
  if not group then
    group = { task = owner, verdict = name, reason = reason, rows = {}, n = 0, late = 0 }
    by_owner[owner] = group
    groups[#groups + 1] = group
  end
  local age = ages[first]
  if not age then
    age = string.format('",%.0f,"', math.max(0, now - first))
    ages[first] = age
  end
  if why then age = age .. why end
  if first < oldest then group.late = group.late + 1 end
  local count = group.n + 1
  group.n, group.rows[count] = count, '["' .. hex(anchor[2 * r - 1]) .. hex(anchor[2 * r]) .. '","'
    .. source_id .. age .. '"]'
end

local function decide(r)
  local old, bucket = record[r], home[r]
  local high, low = delta[2 * r - 1], delta[2 * r]
  local track, fail, touch = flag[r] % 2 == 1, flag[r] % 4 > 1, flag[r] > 3
  local first, owner, text, why, state = now, '', '', nil, 0
  if old then
    local old_high, old_low, _, at
    old_high, old_low, state, first, _, owner, at = unpack_bytes('>I4I4BI6I4Bc0', old)
    high, low, text = xor(high, old_high), xor(low, old_low), sub(old, at)
    if state % 2 == 1 then why = text end
  end
  local zero = high == 0 and low == 0
  if fail then
    if not why or why == '' then why = escape(ARGV[next_why]) end
    next_why = next_why + 1
  end
  local second
  if track then
    if owner ~= '' then
      second = escape(ARGV[next_source])
    else
      owner, text, tracked = task, escape(ARGV[next_source]), tracked + 1
    end
    next_source = next_source + 1
  end

  local ended = true
  if second then
    -- Two trees under one anchor: nack both, or one of the sources would wait for ever.
    verdict('nack', 'conflict', owner, r, first, text)
    conflict = conflict + 1
    if owner ~= task or text ~= second then
      verdict('nack', 'conflict', task, r, now, second)
      tracked, conflict = tracked + 1, conflict + 1
    end
  elseif owner ~= '' and why then
    verdict('nack', 'failed', owner, r, first, text, why)
    failed = failed + 1
    -- The rows of its other messages come late.
    if not zero then unfinished = unfinished + 1 end
  elseif owner ~= '' and zero then
    verdict('ack', 'completed', owner, r, first, text)
    acked, completed[first] = acked + 1, (completed[first] or 0) + 1
  elseif not old and owner == '' and not why and zero then
    ended = true -- for example a TOUCH of an unknown anchor: a no-op
  elseif not old and owner ~= '' and pending >= 2 * high_water then
    verdict('nack', 'overflow', owner, r, first, text)
    overflow = overflow + 1
    rejected[overflow] = pack('>I2', r - 1)
  elseif not old and owner == '' and (reshard or pending >= high_water) then
    orphaned = orphaned + 1
  else
    ended = false
  end

  if not ended then
    local moves, to, capped = touch or fail or refresh, current, false
    if old and moves then
      to, capped = moved_to(bucket, first)
    elseif old then
      to, capped = bucket, state > 1
    end
    local value = pack('>I4I4BI6I4B', high, low,
      (owner == '' and why and 1 or 0) + (capped and 2 or 0), first, since(first), #owner) .. owner
      .. (owner == '' and why or text)
    -- If the deadline leaves the record where it is, no clock was restarted.
    if owner ~= '' and touch and not (capped and to == bucket) then
      verdict('touch', 'reset', owner, r, first, text)
    end
    if (moves or not old) and owner ~= '' then used[owner] = true end
    put(to, r, value)
    if not old then created, pending = created + 1, pending + 1 end
    ended = bucket ~= to
  elseif old then
    pending = pending - 1
  end
  if ended and old then drop(bucket, r) end
end

for r = 1, n do
  local old, high, low = record[r], delta[2 * r - 1], delta[2 * r]
  local general = true
  -- Fast paths for the three usual kinds of rows. Each has the same effect as decide(r).
  if flag[r] == 0 and old then
    local old_high, old_low, begun_as = unpack_bytes('>I4I4I7', old)
    if high == old_high and low == old_low then
      local first, _, owner, at = unpack_bytes('>I6I4Bc0', old, 10)
      if owner ~= '' then
        verdict('ack', 'completed', owner, r, first, sub(old, at))
        drop(home[r], r)
        acked, completed[first] = acked + 1, (completed[first] or 0) + 1
        pending, general = pending - 1, false
      end
    elseif not refresh then
      local stays = times[begun_as]
      if not stays then
        stays = sub(old, 9, 15) .. pack('>I4', since(begun_as % 2 ^ 48))
        times[begun_as] = stays
      end
      local list = puts[home[r]] -- as put() does, without the cost of a call
      local count = list.n + 2
      list[count - 1], list.n = ids[r], count
      list[count] = pack('>I4I4', xor(high, old_high), xor(low, old_low)) .. stays .. sub(old, 20)
      general = false
    end
  elseif flag[r] == 1 and not old and high + low > 0 and pending < 2 * high_water then
    put(current, r, sub(deltas, 8 * r - 7, 8 * r) .. begun .. escape(ARGV[next_source]))
    next_source, tracked = next_source + 1, tracked + 1
    created, pending, general = created + 1, pending + 1, false
  end
  if general then decide(r) end
end

-- part: sources

-- Write. Redis checks maxmemory at a script's first write only. A batch that creates records
-- begins with a write that Redis may refuse, any other batch with one that frees memory. Both
-- writes are no-ops. Verdicts are written first: if a later write raised an error (the user lacks
-- a right, for example), a tree could get two verdicts, but never none.

if created == 0 then call('UNLINK', shard) else call('HINCRBY', meta, 'tracked', 0) end
for _, group in ipairs(groups) do
  if group.told then
    local rows = group.rows
    rows[1] = '[' .. rows[1]
    rows[group.n] = rows[group.n] .. ']'
    group.json = table.concat(rows, ',')
    call('XADD', group.key, '*', 'verdict', group.verdict, 'reason', group.reason,
      'n', group.n, 'rows', group.json)
  end
end
if fence_key then
  call('HSET', fence_key, producer, fence_value)
  if fence_old and fence_old ~= fence_key then call('HDEL', fence_old, producer) end
end
for bucket = 0, buckets - 1 do
  local key, new = pending_keys[bucket], sizes[bucket] == 0
  if puts[bucket].n > 0 then
    -- Add and remove a long value, so that Redis stores this hash as a table (see LONG). HDEL runs
    -- first as well: a user without the right to HDEL must fail before the value is added.
    if new then
      call('HDEL', key, '')
      call('HSET', key, '', LONG)
    end
    call('HSET', key, unpack(puts[bucket]))
    if new then call('HDEL', key, '') end
  end
end
for bucket = 0, buckets - 1 do
  if drops[bucket].n > 0 then call('HDEL', pending_keys[bucket], unpack(drops[bucket])) end
end
if tracks > 0 and not conf[10] then
  call('HINCRBY', meta, 'tasks', 1)
  call('HINCRBY', meta, 'backlog:' .. task, 0)
end
if #changed > 0 then call('HSET', meta, unpack(changed)) end
for _, group in ipairs(groups) do
  if group.told and conf[9] == 'yes' then
    publish(group.verdict, group.task, '{"verdict":"' .. group.verdict .. '","reason":"'
      .. group.reason .. '","n":' .. group.n .. ',"rows":', group.json)
  end
end
if slo_ms > 0 then
  for _, group in pairs(group_of.completed or {}) do slow = slow + group.late end
end
for name, count in pairs({ tracked = tracked, acked = acked, failed = failed,
  overflow = overflow, conflict = conflict, orphaned = orphaned, slow = slow }) do
  if count > 0 then call('HINCRBY', meta, name, count) end
end
if unfinished > 0 then redis.pcall('HINCRBY', meta, 'unfinished:' .. current, unfinished) end
-- part: latency
return { 1, tracked, acked, failed + conflict, overflow, pending, high_water,
  table.concat(rejected) }
