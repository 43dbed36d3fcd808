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

-- part: keys
if #ARGV < 6 then return refuse('ARGS', 'needs two keys and six arguments or more') end
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

-- part: decide
-- part: sources

-- Write. Redis checks maxmemory at a script's first write only. A batch that creates records
-- begins with a write that Redis may refuse, any other batch with one that frees memory. Both
-- writes are no-ops. Verdicts are written first: if a later write raised an error (the user lacks
-- a right, for example), a tree could get two verdicts, but never none.

if created == 0 then call('UNLINK', shard) else call('HINCRBY', meta, 'tracked', 0) end
for _, group in ipairs(groups) do
  if group.told then
    local rows = group.rows
    rows[1] = '[["' .. rows[1]
    rows[group.n] = rows[group.n] .. '"]]'
    group.json = table.concat(rows, '"],["')
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
for name, count in pairs({ tracked = tracked, acked = told.completed, failed = told.failed,
  overflow = told.overflow, conflict = told.conflict, orphaned = orphaned, slow = slow }) do
  if count > 0 then call('HINCRBY', meta, name, count) end
end
if unfinished > 0 then redis.pcall('HINCRBY', meta, 'unfinished:' .. current, unfinished) end
-- part: latency
return { 1, tracked, told.completed, told.failed + told.conflict, told.overflow, pending,
  high_water, table.concat(rejected) }
