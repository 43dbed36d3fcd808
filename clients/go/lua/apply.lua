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
-- parts/begin.lua
-- Names that every script uses. Gives shard, meta, call, refuse.
local shard, meta = KEYS[1], KEYS[2]
local call = redis.call

local function refuse(code, words)
  return redis.error_reply('ACKER ' .. code .. ' ' .. words)
end
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
-- parts/schema.lua
-- Check that the namespace exists, with a schema that this script supports. Needs conf, whose first
-- field is the schema.
if not conf[1] then
  return refuse('NAMESPACE', 'not created: ' .. shard)
elseif conf[1] ~= '2' then
  return refuse('SCHEMA', 'this script supports schema 2 only, the namespace has another')
end
-- parts/limits.lua
-- The configuration that limits a batch. Needs conf: schema, shard, shards, buckets, current,
-- high_water, refresh, outcomes_limit, .. Gives shard_number, shards, refresh, high_water and
-- backlog_limit, this shard's shares of the mark and of the verdicts that may wait, and what ring
-- needs.
local shard_number, shards = tonumber(conf[2]), tonumber(conf[3])
local conf_buckets, conf_current = conf[4], conf[5]
local high_water = math.max(1, math.ceil(conf[6] / shards))
local refresh = conf[7] == 'update'
local backlog_limit = math.max(1, math.ceil(conf[8] / shards))
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

-- parts/text.lua
-- Check that a text is UTF-8 without control bytes. Gives is_text.
local is_text
do
  -- Return a pattern for the sequences of UTF-8 that begin with this byte, without overlong forms
  -- and surrogates; nil if none does.
  local function sequence_of(lead)
    if lead < 194 then
      return nil
    elseif lead < 224 then
      return '[\194-\223][\128-\191]'
    elseif lead == 224 then
      return '\224[\160-\191][\128-\191]'
    elseif lead == 237 then
      return '\237[\128-\159][\128-\191]'
    elseif lead < 240 then
      return '[\225-\236\238\239][\128-\191][\128-\191]'
    elseif lead == 240 then
      return '\240[\144-\191][\128-\191][\128-\191]'
    elseif lead < 244 then
      return '[\241-\243][\128-\191][\128-\191][\128-\191]'
    elseif lead == 244 then
      return '\244[\128-\143][\128-\191][\128-\191]'
    end
  end

  function is_text(text)
    local at = string.find(text, '[^\32-\126]')
    while at do
      -- Replace all sequences of this kind by a letter each. The bytes before this one remain.
      local lead = string.byte(text, at)
      local sequence = sequence_of(lead)
      if not sequence then return false end
      text = string.gsub(text, sequence, 'x')
      if string.byte(text, at) == lead then return false end
      at = string.find(text, '[^\32-\126]', at)
    end
    return true
  end
end
-- parts/escape.lua
-- JSON-escape a text of which is_text is true: such a text has no control bytes, so only quotes and
-- backslashes need it. Texts are escaped once, when they are stored. Gives escape.
local function escape(value)
  if string.find(value, '\\', 1, true) then value = string.gsub(value, '\\', '\\\\') end
  if string.find(value, '"', 1, true) then value = string.gsub(value, '"', '\\"') end
  return value
end
-- parts/rows.lua
-- Read and validate the rows of a batch. Needs flags, anchors, deltas, task, conf, shards,
-- shard_number, is_text, escape. Gives n, tracks, fails (number of rows, with TRACK and with FAIL),
-- and for each row flag[r], ids[r] (8 bytes), anchor and delta as halves, the high one first
-- (anchor[2 * r - 1], anchor[2 * r]), and row_of[id].
-- From lua/spec.json, by python -m proof.spec
local MAX_ROWS, MAX_TEXTS, MAX_TEXT = 1024, 64 * 1024, 255
local MAX_TASKS, MAX_NAME = 1000, 64

local n = #flags
if n < 1 or n > MAX_ROWS then
  return refuse('ARGS', 'a batch has 1 to ' .. MAX_ROWS .. ' rows, this one has ' .. n)
elseif #anchors ~= 8 * n or #deltas ~= 8 * n then
  return refuse('ARGS', 'anchors and deltas need 8 bytes for each of ' .. n .. ' rows')
elseif find(flags, '[^%z\1-\7]') then
  return refuse('ARGS', 'unknown flag; the flags are TRACK 1, FAIL 2, TOUCH 4')
end
local tracks = select(2, string.gsub(flags, '[\1\3\5\7]', ''))
local fails = select(2, string.gsub(flags, '[\2\3\6\7]', ''))
if #ARGV ~= 6 + tracks + fails then
  return refuse('ARGS', tracks .. ' TRACK and ' .. fails .. ' FAIL rows need one text each; the '
    .. 'number of texts is ' .. #ARGV - 6)
elseif (tracks > 0) ~= (task ~= '') then
  return refuse('ARGS', 'a task must be given with TRACK rows, and must be empty without them')
elseif task ~= '' and (#task > MAX_NAME or find(task, '[^A-Za-z0-9_.-]')) then
  return refuse('ARGS', 'a task must be 1 to ' .. MAX_NAME .. ' characters of A-Z a-z 0-9 _ . -')
elseif tracks > 0 and not conf[10] and tonumber(conf[11] or 0) >= MAX_TASKS then
  return refuse('ARGS', 'a shard has at most ' .. MAX_TASKS
    .. ' tasks; an idle task is forgotten after 100 ticks, once its verdicts are taken')
end

-- Most texts are printable ASCII without quotes and backslashes, which needs no escape.
local PLAIN = '^[\93-\126\35-\91\32\33]*$'
local bytes, others = 0, {}
for i = 7, #ARGV do
  local text = ARGV[i]
  bytes = bytes + #text
  if #text > MAX_TEXT or (#text == 0 and i <= 6 + tracks) then
    return refuse('ARGS', 'a source id must have 1 to ' .. MAX_TEXT .. ' bytes and a why up to '
      .. MAX_TEXT .. '; text ' .. i - 7 .. ' has ' .. #text)
  elseif bytes > MAX_TEXTS then
    return refuse('ARGS', 'the texts of a batch have at most ' .. MAX_TEXTS .. ' bytes in all')
  elseif not find(text, PLAIN) then
    others[#others + 1] = text
  end
end
if #others == 0 then
  escape = function(text) return text end
elseif not is_text(table.concat(others, ' ')) then
  for i = 7, #ARGV do
    if not is_text(ARGV[i]) then
      return refuse('ARGS', 'text ' .. i - 7 .. ' is not UTF-8 or has a control byte')
    end
  end
end

-- All rows in one call for each column: a call per row would cost more than its work. Each value
-- becomes two numbers, the high half first. unpack adds a position at the end, which is removed.
local flag = { byte(flags, 1, n) }
local ids = { unpack_bytes(string.rep('c8', n), anchors) }
local anchor = { unpack_bytes('>' .. string.rep('I4I4', n), anchors) }
local delta = { unpack_bytes('>' .. string.rep('I4I4', n), deltas) }
ids[n + 1] = nil
local row_of = {}
for r = 1, n do
  local id, high, low = ids[r], anchor[2 * r - 1], anchor[2 * r]
  if high >= 2 ^ 30 or id == '\0\0\0\0\0\0\0\0' then
    return refuse('ARGS', 'anchor of row ' .. r - 1 .. ' is not in 1..2^62-1')
  elseif row_of[id] then
    return refuse('ARGS', 'anchor of row ' .. r - 1 .. ' is given twice; fold rows per anchor')
  elseif delta[2 * r - 1] >= 2 ^ 31 then
    return refuse('ARGS', 'delta of row ' .. r - 1 .. ' is above 2^63-1')
  elseif low % shards ~= shard_number then
    return refuse('SHARD', 'anchor of row ' .. r - 1 .. ' does not belong to shard '
      .. shard_number .. ' of ' .. shards)
  end
  row_of[id] = r
end

-- parts/clock.lua
-- The time on the clock of Redis. Gives now, in ms since 1970.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- parts/fence.lua
-- The fencing token. A number that was applied before is a repeat, whether or not the producer got
-- the reply. Needs producer, fence, buckets, current, now. Gives fence_key, fence_value (to be
-- written to it), and fence_old, the key that holds the producer's previous fence.
-- From lua/spec.json, by python -m proof.spec
local MAX_FENCES, MAX_PRODUCER, MAX_DIGEST = 100000, 128, 32

local fence_key, fence_old, fence_value
if producer == '' then
  if fence ~= '' then return refuse('ARGS', 'a fence needs a producer') end
else
  local seq, digest = string.match(fence, '^([1-9][0-9]*)$'), ''
  if not seq then seq, digest = string.match(fence, '^([1-9][0-9]*):([0-9a-fA-F]+)$') end
  if #producer > MAX_PRODUCER then
    return refuse('ARGS', 'a producer has up to ' .. MAX_PRODUCER .. ' bytes, this one has '
      .. #producer)
  elseif not seq or #seq > 15 or #digest > MAX_DIGEST then
    return refuse('ARGS', 'a fence must be <seq> or <seq>:<digest>, seq 1 to 15 digits without a '
      .. 'leading 0, digest up to ' .. MAX_DIGEST .. ' hex digits')
  end
  local durable = string.byte(producer) == 64
  local keys, fences, last = {}, 0, nil
  if durable then
    keys[1] = shard .. ':fence:durable'
  else
    for age = 0, buckets - 1 do keys[age + 1] = shard .. ':fence:' .. (current - age) % buckets end
  end
  for _, key in ipairs(keys) do
    fences = fences + call('HLEN', key)
    if not last then
      last = call('HGET', key, producer)
      fence_old = last and key
    end
  end
  if last then
    -- A double holds 15 digits exactly.
    local last_seq, last_digest = string.match(last, '^(%d+):(%x*)')
    local order = tonumber(seq) - tonumber(last_seq)
    if order == 0 and digest ~= last_digest then
      return refuse('CONFLICT', 'batch ' .. seq .. ' came back with other content')
    elseif order <= 0 then
      call('UNLINK', shard) -- a first write that maxmemory does not refuse
      call('HINCRBY', meta, 'repeated', 1)
      return { 0, last_seq }
    end
  elseif fences >= MAX_FENCES then
    return refuse('FENCE', 'this shard holds ' .. fences .. ' fences, too many for a new one; '
      .. 'reuse producer names')
  end
  fence_key = keys[1]
  fence_value = seq .. ':' .. digest .. (durable and ':' .. string.format('%.0f', now) or '')
end

-- parts/records.lua
-- Look up the records of a batch, newest bucket first, and count the pending trees. Needs n, ids,
-- row_of, buckets, current, conf. Gives record[r] and home[r], its bucket; pending, of the whole
-- shard; and for each bucket pending_keys and sizes.

-- By its defaults, Redis may store a hash of up to this many fields as a listpack.
local SMALL = 512
-- Trees in blocks (apply_blocks.lua) are pending as well.
local pending_keys, sizes, pending = {}, {}, tonumber(conf[12] or 0)
local record, home, found = {}, {}, 0
for age = 0, buckets - 1 do
  local bucket = (current - age) % buckets
  local key = shard .. ':pending:' .. bucket
  local size = call('HLEN', key)
  pending_keys[bucket], sizes[bucket], pending = key, size, pending + size
  if size > 0 and size <= SMALL and size <= 8 * (n - found) then
    -- In a listpack each lookup is linear: read the whole hash, unless a few lookups cost less.
    local all = call('HGETALL', key)
    for i = 1, 2 * size, 2 do
      local r = row_of[all[i]]
      if r and not record[r] then record[r], home[r], found = all[i + 1], bucket, found + 1 end
    end
  elseif size > 0 and found < n then
    local ask, rows = ids, nil
    if found > 0 then
      ask, rows = {}, {}
      for r = 1, n do
        if not record[r] then ask[#ask + 1], rows[#rows + 1] = ids[r], r end
      end
    end
    local got = call('HMGET', key, unpack(ask))
    for k = 1, #got do
      if got[k] then
        local r = rows and rows[k] or k
        record[r], home[r], found = got[k], bucket, found + 1
      end
    end
  end
end
local conf_deadline, conf_tick, conf_ticked, conf_salt = conf[15], conf[16], conf[17], conf[19]
-- parts/deadline.lua
-- Where rows move a record or a block. Needs conf_deadline, conf_tick, conf_ticked, buckets,
-- current, now. Gives moved_to(bucket, first): the bucket to move to from this one, and whether
-- the deadline keeps the record out of the newest bucket; and since(first): the ms from first to
-- now, as 4 bytes can hold them.
local moved_to
do
  local deadline_ms = tonumber(conf_deadline or 0)

  function moved_to(from_bucket, first)
    if deadline_ms == 0 then return current, false end
    local tick_ms = tonumber(conf_tick)
    -- The next tick that is on time. The clock may have gone back since the last tick.
    local next_ms = math.min(math.max(conf_ticked + tick_ms, now), now + tick_ms)
    -- The bucket of age a expires with tick buckets - a from now, and the first tick that is not
    -- before the deadline must be that one or a later one.
    local ticks = math.max(1, 1 + math.ceil((first + deadline_ms - next_ms) / tick_ms))
    local age = math.max(0, buckets - ticks)
    -- Never into an older bucket: after a change of tick_ms the present one may end later.
    if age >= (current - from_bucket) % buckets then return from_bucket, age > 0 end
    return (current - age) % buckets, age > 0
  end
end

local MAX_SINCE = 2 ^ 32 - 1

local function since(first)
  local ms = now - first
  if ms < 0 then return 0 end
  return ms < MAX_SINCE and ms or MAX_SINCE
end
-- parts/feed.lua
-- Publish verdicts for the live feed. Needs namespace, and conf_salt. Gives
-- publish(verdict, source, head, tail): head and tail are a JSON object without its end.
local publish
do
  local ending

  function publish(verdict, source, head, tail)
    -- All databases of a server have the same channels. So a message says of which namespace of
    -- this name it is; the digest reveals nothing of the salt.
    ending = ending or (conf_salt
      and ',"of":"' .. string.sub(redis.sha1hex('feed:' .. conf_salt), 1, 16) .. '"}' or '}')
    -- A user without the right to PUBLISH loses the live feed only; the stream has the entry.
    redis.pcall('PUBLISH', 'acker:' .. namespace .. ':' .. verdict .. ':' .. source,
      head .. tail .. ending)
  end
end
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

-- parts/sources.lua
-- Look up the backlogs of the sources that get verdicts, by one command: a batch can end trees of a
-- thousand sources. Needs groups (of verdicts, each with task, verdict, n and late, the number of
-- acks that took longer than slo_ms), used (the sources that rotate must not forget), ticks,
-- backlog_limit, sub. Gives each group its key, and told, whether it is to be written; and changed,
-- the fields of meta to be written, with their values.
local waiting, asked, changed = {}, {}, {}
local ends, ended, good = {}, {}, {}
local function ask_for(name)
  if not waiting[name] then
    waiting[name], asked[#asked + 1], asked[#asked + 2] = 0, 'backlog:' .. name, 'used:' .. name
  end
end
for _, group in ipairs(groups) do
  local name = group.task
  ask_for(name)
  if group.verdict ~= 'touch' and not ended[name] then ended[name], ends[#ends + 1] = 0, name end
end
for owner in pairs(used) do ask_for(owner) end
local names = #asked
for k, name in ipairs(ends) do
  asked[names + 2 * k - 1], asked[names + 2 * k] = 'ended:' .. name, 'good:' .. name
end
local fields = #asked > 0 and call('HMGET', meta, unpack(asked)) or asked
for k = 1, names, 2 do
  local name = sub(asked[k], 9)
  waiting[name] = tonumber(fields[k] or 0)
  if used[name] and fields[k + 1] ~= ticks then
    changed[#changed + 1], changed[#changed + 2] = asked[k + 1], ticks
  end
end
for k, name in ipairs(ends) do
  -- Statistics: a value that is no number stops no verdict.
  local at = names + 2 * k
  ended[name], good[name] = tonumber(fields[at - 1]) or 0, tonumber(fields[at]) or 0
end
for _, group in ipairs(groups) do
  group.key = shard .. ':outcomes:' .. group.task
  local kind, backlog = call('TYPE', group.key).ok, waiting[group.task]
  if kind ~= 'stream' and kind ~= 'none' or not backlog then
    return refuse('SCHEMA', group.key .. ' or its backlog has been tampered with')
  end
  group.told = group.verdict ~= 'touch' or backlog < backlog_limit
  if group.told then
    waiting[group.task] = backlog + group.n
    changed[#changed + 1], changed[#changed + 2] = 'backlog:' .. group.task, backlog + group.n
  end
  if group.verdict ~= 'touch' then
    local name, at = group.task, #changed
    ended[name] = ended[name] + group.n
    changed[at + 1], changed[at + 2] = 'ended:' .. name, ended[name]
    if group.verdict == 'ack' then
      good[name] = good[name] + group.n - group.late
      changed[at + 3], changed[at + 4] = 'good:' .. name, good[name]
    end
  end
end

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
-- parts/latency.lua
-- Histogram of the trees' latency, by the number of binary digits of the ms. Best effort: if it
-- cannot be counted, the call still succeeds. Needs now, and completed: number of acked trees by
-- the time of their first row.
do
  -- 24 days. A longer latency is counted as this one.
  local MAX_AGE = 2 ^ 31 - 1
  local latency, sum = {}, 0
  for first, number in pairs(completed) do
    local age = math.max(0, math.min(now - first, MAX_AGE))
    local _, digits = math.frexp(age)
    latency[digits], sum = (latency[digits] or 0) + number, sum + age * number
  end
  for digits, number in pairs(latency) do
    redis.pcall('HINCRBY', meta, 'latency:' .. digits, number)
  end
  if sum > 0 then redis.pcall('HINCRBY', meta, 'latency_ms', string.format('%.0f', sum)) end
end
return { 1, tracked, acked, failed + conflict, overflow, pending, high_water,
  table.concat(rejected) }
