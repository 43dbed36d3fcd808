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
-- parts/begin.lua
-- Names that every script uses. Gives shard, meta, call, refuse.
local shard, meta = KEYS[1], KEYS[2]
local call = redis.call

local function refuse(code, words)
  return redis.error_reply('ACKER ' .. code .. ' ' .. words)
end
local producer, fence = ARGV[1], ARGV[2]

-- From lua/spec.json, by python -m proof.spec
local MAX_TASKS = 1000

-- A value of this length makes Redis store a hash as a table. In a listpack each lookup is linear.
local LONG = string.rep(' ', 1024)
local byte, sub, find = string.byte, string.sub, string.find
local pack, unpack_bytes, format = struct.pack, struct.unpack, string.format

-- Validation: nothing is written before the whole batch has been validated.

local namespace = string.match(shard or '', '^acker:{([A-Za-z0-9_.-]+):[0-9]+}$')
if #KEYS ~= 2 or #ARGV < 9 or #ARGV % 7 ~= 2 or not namespace or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys, acker:{<namespace>:<shard>} and the same with :meta, two '
    .. 'arguments, and seven more for each block')
end
local conf = call('HMGET', meta, 'schema', 'shard', 'shards', 'buckets', 'current', 'high_water',
  'refresh', 'outcomes_limit', 'publish', 'slots', 'tasks', 'reshard', 'ticks', 'deadline_ms',
  'tick_ms', 'ticked_ms', 'slo_ms', 'salt')
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
-- parts/bitmaps.lua
-- Bitmaps of slots: ceil(n / 8) bytes, bit 7 of byte 0 is slot 0, as SETBIT counts; the bits after
-- the last slot are 0. Gives width(slots), the bytes of a bitmap; ones(bitmap), the number of its
-- slots; has(bitmap, slot); with(bitmap, slots, width), a copy with more slots; to_hex(bitmap); and
-- is_bitmap(bitmap, slots, present): whether no call can have written anything else.
local band, bor, rshift, byte_of = bit.band, bit.bor, bit.rshift, string.byte
local MASKS = { [0] = 128, 64, 32, 16, 8, 4, 2, 1 }

local function width(slots)
  return math.ceil(slots / 8)
end

local counted = setmetatable({}, { __index = function(known, value)
  local rest, bits = value, 0
  while rest > 0 do rest, bits = math.floor(rest / 2), bits + rest % 2 end
  known[value] = bits
  return bits
end })
local hexed = setmetatable({}, { __index = function(known, char)
  known[char] = string.format('%02x', byte_of(char))
  return known[char]
end })

local function ones(bitmap)
  local sum = 0
  for _, value in ipairs({ byte_of(bitmap, 1, #bitmap) }) do sum = sum + counted[value] end
  return sum
end

local function has(bitmap, slot)
  return band(byte_of(bitmap, rshift(slot, 3) + 1) or 0, MASKS[slot % 8]) > 0
end

-- A bitmap has at least one slot, and only slots of present, unless that is ''.
local function is_bitmap(bitmap, slots, present)
  local bytes = width(slots)
  if not bitmap or #bitmap ~= bytes or not find(bitmap, '[^%z]')
    or byte_of(bitmap, bytes) % 2 ^ (8 * bytes - slots) > 0 then
    return false
  elseif present == '' then
    return true
  end
  -- Four bytes at a time: a loop over the bytes of 64 blocks would take some milliseconds.
  local words, rest = '>' .. string.rep('I4', math.ceil(bytes / 4)), string.rep('\0', -bytes % 4)
  local held = { struct.unpack(words, present .. rest) }
  for k, word in ipairs({ struct.unpack(words, bitmap .. rest) }) do
    -- Both lists end with the position after the last word.
    if band(word, held[k]) ~= bit.tobit(word) then return false end
  end
  return true
end

-- A bitmap that is nil has no slots.
local function with(bitmap, slots, bytes)
  local values = { byte_of(bitmap or string.rep('\0', bytes), 1, bytes) }
  for _, slot in ipairs(slots) do
    local at = rshift(slot, 3) + 1
    values[at] = bor(values[at], MASKS[slot % 8])
  end
  return string.char(unpack(values))
end

local function to_hex(bitmap)
  return (string.gsub(bitmap, '.', hexed))
end

-- parts/blocks.lua
-- Read and validate the blocks of a batch. Needs shards, shard_number. Gives items, one
-- table for each block: number (in this call, from 1), id (8 bytes), name (13 hex digits), track,
-- touch, deltas, and where given slots, task, label, present, trees (of a TRACK; present is a
-- bitmap, or '' for all slots), at (slots of sparse deltas), failed (slots and whys); and ids, in
-- the same order. Needs is_text, width, ones, has, band, MASKS.
-- From lua/spec.json, by python -m proof.spec
local MAX_BLOCKS, MAX_CALL, MAX_SLOTS = 64, 1024 * 1024, 4095
local MAX_NAMED, MAX_TEXTS, MAX_TEXT, MAX_NAME = 4096, 64 * 1024, 255, 64

local ABSENT = string.rep('\0', 8)
local sparse, gaps = 0, {}

-- Return the slots of a column, 2 bytes each; nil unless they ascend and are below MAX_SLOTS.
local function read_slots(column)
  local list, last = {}, -1
  for k = 1, #column / 2 do
    local high, low = byte(column, 2 * k - 1, 2 * k)
    local slot = 256 * high + low
    if slot <= last or slot >= MAX_SLOTS then return nil end
    list[k], last = slot, slot
  end
  return list
end

-- Return the failures as {slots, whys}, and the bytes of the whys; nil if they are malformed.
local function read_failed(column)
  local slots, whys, at, last, size = {}, {}, 1, -1, 0
  while at <= #column do
    if at + 2 > #column then return nil end
    local high, low, length = byte(column, at, at + 2)
    local slot, why = 256 * high + low, sub(column, at + 3, at + 2 + length)
    if slot <= last or slot >= MAX_SLOTS or #why ~= length then return nil end
    slots[#slots + 1], whys[#whys + 1] = slot, why
    at, last, size = at + 3 + length, slot, size + length
  end
  if not is_text(table.concat(whys, ' ')) then return nil end
  return { slots = slots, whys = whys }, size
end

-- Return where in eight deltas those begin that a byte of a bitmap has no slot for.
local function absent_of(value)
  local list = {}
  for k = 0, 7 do
    if band(value, MASKS[k]) == 0 then list[#list + 1] = 8 * k + 1 end
  end
  gaps[value] = list
  return list
end

-- Return the number of trees of a bitmap of the present slots; or nil, and why it is wrong.
local function read_present(present, slots, deltas)
  local trees = #present == width(slots) and ones(present) or 0
  if trees == 0 then return nil, 'needs in present a bit for each slot, one of them set' end
  sparse = sparse + slots - trees
  if sparse > MAX_NAMED then return trees end -- refused below
  for slot = slots, 8 * #present - 1 do
    if has(present, slot) then return nil, 'has a bit after its last slot in present' end
  end
  for k, value in ipairs({ byte(present, 1, #present) }) do
    if value < 255 then
      for _, from in ipairs(gaps[value] or absent_of(value)) do
        local at = 64 * (k - 1) + from
        if at <= #deltas and sub(deltas, at, at + 7) ~= ABSENT then
          return nil, 'has a delta for a slot without a tree'
        end
      end
    end
  end
  return trees
end

local count = (#ARGV - 2) / 7
local bytes, texts = 0, 0
for i = 3, #ARGV do bytes = bytes + #ARGV[i] end
if count > MAX_BLOCKS or bytes > MAX_CALL then
  return refuse('ARGS', 'a call has at most ' .. MAX_BLOCKS .. ' blocks and ' .. MAX_CALL
    .. ' bytes, this one has ' .. count .. ' and ' .. bytes)
end
local function bad(k, words)
  return refuse('ARGS', 'block ' .. k - 1 .. ' ' .. words)
end
local items, ids, seen = {}, {}, {}
for k = 1, count do
  local at = 7 * k - 5
  local flags, id, header, present, slots, deltas, failed = ARGV[at + 1], ARGV[at + 2],
    ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  local flag = byte(flags)
  if #flags ~= 1 or (flag ~= 0 and flag ~= 1 and flag ~= 4 and flag ~= 5) then
    return bad(k, 'has an unknown flag; the flags are TRACK 1 and TOUCH 4')
  elseif #id ~= 8 then
    return bad(k, 'needs 8 bytes for its number')
  end
  local high, low = unpack_bytes('>I4I4', id)
  if high >= 2 ^ 18 then
    return bad(k, 'is not in 0..2^50-1')
  elseif seen[id] then
    return bad(k, 'is given twice; fold the deltas of a block')
  elseif low % shards ~= shard_number then
    return refuse('SHARD', 'block ' .. k - 1 .. ' does not belong to shard ' .. shard_number
      .. ' of ' .. shards)
  end
  local item = { number = k, id = id, track = flag % 2 == 1, touch = flag > 3, deltas = deltas,
    name = format('%05x%08x', high, low) }
  if item.track then
    local task_length = byte(header, 3) or 0
    item.slots = #header > 3 + task_length and unpack_bytes('>I2', header) or 0
    item.task, item.label = sub(header, 4, 3 + task_length), sub(header, 4 + task_length)
    if item.slots < 1 or item.slots > MAX_SLOTS or task_length < 1 or task_length > MAX_NAME
      or find(item.task, '[^A-Za-z0-9_.-]') then
      return bad(k, 'needs a header: 1..' .. MAX_SLOTS .. ' slots, a task of 1 to ' .. MAX_NAME
        .. ' characters of A-Z a-z 0-9 _ . -, and a label')
    elseif #item.label > MAX_TEXT or not is_text(item.label) then
      return bad(k, 'has a label that is too long, not UTF-8, or has a control byte')
    elseif slots ~= '' or #deltas ~= 8 * item.slots then
      return bad(k, 'is tracked: it needs 8 bytes of deltas for each slot, and no slots column')
    end
    texts, item.present, item.trees = texts + #item.label, present, item.slots
    if present ~= '' then
      local trees, wrong = read_present(present, item.slots, deltas)
      if wrong then return bad(k, wrong) end
      item.trees = trees
      if item.trees == item.slots then item.present = '' end
    end
  elseif header ~= '' or present ~= '' then
    return bad(k, 'has a header or present slots, which are allowed with TRACK only')
  end
  if #deltas % 8 ~= 0 or #deltas > 8 * MAX_SLOTS or (slots ~= '' and #slots * 4 ~= #deltas) then
    return bad(k, 'needs 8 bytes of deltas for each slot, up to ' .. MAX_SLOTS)
  end
  if slots ~= '' then
    item.at = read_slots(slots)
    if not item.at then
      return bad(k, 'has slots that do not ascend, or one above ' .. MAX_SLOTS - 1)
    end
    sparse = sparse + #item.at
  end
  if failed ~= '' then
    local length
    item.failed, length = read_failed(failed)
    if not item.failed then
      return bad(k, 'has failures that do not ascend, or a why that is not UTF-8 or has a control '
        .. 'byte')
    end
    texts, sparse = texts + length, sparse + #item.failed.slots
  end
  items[k], ids[k], seen[id] = item, id, true
end
if texts > MAX_TEXTS or sparse > MAX_NAMED then
  return refuse('ARGS', 'a call has at most ' .. MAX_TEXTS .. ' bytes of texts and ' .. MAX_NAMED
    .. ' named slots, this one has ' .. texts .. ' and ' .. sparse)
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
local conf_deadline, conf_tick, conf_ticked = conf[14], conf[15], conf[16]
local conf_salt = conf[18]
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

-- parts/headers.lua
-- Look up the blocks of a batch, newest bucket first, and count the pending trees. Needs ids,
-- items, buckets, current, conf. Gives each item's bucket and header; pending, of the whole shard;
-- and sizes, the number of blocks of each bucket.
local pending = tonumber(conf[10] or 0)
local ask, asked, sizes = ids, items, {}
for age = 0, buckets - 1 do
  local bucket = (current - age) % buckets
  pending = pending + call('HLEN', shard .. ':pending:' .. bucket)
  sizes[bucket] = call('HLEN', shard .. ':blocks:' .. bucket)
  if #ask > 0 and sizes[bucket] > 0 then
    local ids_left, items_left = {}, {}
    for k, header in ipairs(call('HMGET', shard .. ':blocks:' .. bucket, unpack(ask))) do
      local item = asked[k]
      if header then
        item.bucket, item.header = bucket, header
      else
        ids_left[#ids_left + 1], items_left[#items_left + 1] = ids[item.number], item
      end
    end
    ask, asked = ids_left, items_left
  end
end
local reshard, ticks = conf[12], conf[13] or '0'
local waiting, new_tasks = {}, 0
local function backlog_of(task)
  if not waiting[task] then
    local kind = call('TYPE', shard .. ':outcomes:' .. task).ok
    local backlog, used, ended, good = unpack(call('HMGET', meta, 'backlog:' .. task,
      'used:' .. task, 'ended:' .. task, 'good:' .. task))
    waiting[task] = { number = tonumber(backlog or 0), new = not backlog, used = used,
      valid = kind == 'stream' or kind == 'none', ended = tonumber(ended) or 0,
      good = tonumber(good) or 0 }
  end
  return waiting[task]
end
local key_of, failed_of, present_of = shard .. ':block:', shard .. ':failed:', shard .. ':present:'
local failed_keys, present_keys, new_blocks, failures_before = {}, {}, {}, false
for _, item in ipairs(items) do
  if item.header then
    local first, last, state, slots, digest, task, at = unpack_bytes('>I6I4BI2c8Bc0', item.header)
    local label = sub(item.header, at)
    item.key = key_of .. item.name
    local partial = band(state, 2) > 0
    local present = partial and call('GET', present_of .. item.name) or ''
    if call('STRLEN', item.key) ~= 8 * slots
      or (partial and not is_bitmap(present, slots, '')) then
      return refuse('SCHEMA', item.key .. ' has been tampered with')
    elseif item.track and (slots ~= item.slots or task ~= item.task or label ~= item.label
      or digest ~= sub(redis.sha1hex(item.deltas .. item.present), 1, 8)) then
      return refuse('CONFLICT', 'block ' .. item.name .. ' came back with other content')
    end
    item.first, item.slots, item.task, item.label = first, slots, task, label
    item.present, item.trees = present, slots
    if partial then item.trees = call('BITCOUNT', present_of .. item.name) end
    item.last, item.capped, item.to = last, band(state, 1) > 0, item.bucket
    item.has_failed = band(state, 4) > 0
    failures_before = failures_before or item.has_failed
    if item.touch or refresh then item.to, item.capped = moved_to(item.bucket, first) end
  elseif item.track then
    item.key, item.first, item.to, item.capped = key_of .. item.name, now, current, false
    new_blocks[#new_blocks + 1] = item.id
    present_keys[#present_keys + 1] = present_of .. item.name
  end
  if item.header or item.track then
    local backlog = backlog_of(item.task)
    if not backlog.number or not backlog.valid then
      return refuse('SCHEMA', shard .. ':outcomes:' .. item.task
        .. ' or its backlog has been tampered with')
    elseif item.track and not item.header and reshard then
      return refuse('BACKLOG', 'the namespace is resharding to '
        .. tostring(string.match(reshard, ':(%d+)'))
        .. ' shards; no tree is tracked until that ends, try again later')
    elseif item.track and not item.header and backlog.number >= backlog_limit then
      return refuse('BACKLOG', 'task ' .. item.task .. ' has ' .. backlog.number
        .. ' verdicts waiting to be taken; its source must read and take its outcomes')
    end
    if item.track and not item.header then
      if backlog.new and not backlog.tracks then new_tasks = new_tasks + 1 end
      backlog.tracks = true
    end
    failed_keys[#failed_keys + 1] = failed_of .. item.name
  end
end
if new_tasks > 0 and tonumber(conf[11] or 0) + new_tasks > MAX_TASKS then
  return refuse('ARGS', 'a shard has at most ' .. MAX_TASKS
    .. ' tasks; an idle task is forgotten after 100 ticks, once its verdicts are taken')
end
-- All reads come before the first write, because a read can raise an error.
local expiring = {}
if #new_blocks > 0 then
  for k, header in ipairs(call('HMGET', shard .. ':blocks_expiring', unpack(new_blocks))) do
    expiring[new_blocks[k]] = header
  end
end
if failures_before or (#failed_keys > 0 and call('EXISTS', unpack(failed_keys)) > 0) then
  for _, item in ipairs(items) do
    local before = item.key and call('GET', failed_of .. item.name)
    if before and not item.header then
      item.stale = true -- without a block: remove them when it is tracked
    elseif (before or item.has_failed) and not is_bitmap(before, item.slots, item.present) then
      return refuse('SCHEMA', failed_of .. item.name .. ' has been tampered with')
    elseif before then
      item.before, item.failed_before = before, call('BITCOUNT', failed_of .. item.name)
    end
  end
end
if #present_keys > 0 and call('EXISTS', unpack(present_keys)) > 0 then
  for _, item in ipairs(items) do item.stale = item.stale or not item.header end
end

-- Decide what to write for each block; nothing is written yet.

local tracked, acked, failed, overflow, conflict, orphaned = 0, 0, 0, 0, 0, 0
local created, rejected, work, entries, completed, slow = 0, {}, {}, {}, {}, 0
local slo_ms = tonumber(conf[17]) or 0

local function reject(item, reason)
  rejected[#rejected + 1] = pack('>I2', item.number - 1)
  item.rejected, tracked = reason, tracked + item.trees
end

-- Return the failures of slots that have not failed before.
local function failures(item)
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
  local known = item.header or item.track
  if item.track and item.header then
    -- The same block again, for example from a batch whose fence has expired: ignore its deltas.
    -- failures() checks each of its failures.
    item.deltas = ''
  elseif item.track and expiring[item.id] then
    -- The block of this number that expires still uses the key of the checksums.
    reject(item, 'conflict')
    conflict, known = conflict + item.trees, false
  elseif item.track and pending + item.slots > 2 * high_water then
    reject(item, 'overflow')
    overflow, known = overflow + item.trees, false
  elseif item.track then
    tracked, created, pending = tracked + item.trees, created + 1, pending + item.slots
  elseif not known then
    orphaned = orphaned + #item.deltas / 8 + (item.failed and #item.failed.slots or 0)
  end
  if known then
    if #item.deltas > 8 * item.slots and not item.at then
      orphaned = orphaned + #item.deltas / 8 - item.slots
      item.deltas = sub(item.deltas, 1, 8 * item.slots)
    end
    if item.failed then item.new = failures(item) end
  end
  if known or item.rejected then work[#work + 1] = item end
end

-- Write. Redis checks maxmemory at a script's first write only. A batch that creates blocks
-- begins with a write that Redis may refuse, any other batch with one that frees memory. The new
-- checksums are computed in scratch keys. Verdicts are written before the new checksums replace
-- the old ones: if a write raised an error, a tree could get two verdicts, but never none.

if created == 0 then call('UNLINK', shard) end
-- parts/weigh.lua
-- XOR the deltas of a block onto its checksums, in scratch keys. Needs shard, orphaned. Gives
-- weigh(item), which sets item.result to the key of the new checksums, if there are any, and
-- returns whether all are zero; scratch; and scratched, whether a scratch key was written.
local NEAR = 32
local scratch, scratch_of = shard .. ':scratch', shard .. ':scratch:'
local scratched, zeros = false, {}

-- Write the deltas of sparse slots into the scratch key. Slots that are close together share one
-- write, with zeros between them: a write costs more than some string operations.
local function spread(item)
  local at, deltas, parts, n, from, last = item.at, item.deltas, {}, 0, 0, -1
  call('SET', scratch, '')
  for k = 1, #at do
    local slot = at[k]
    if slot >= item.slots then
      orphaned = orphaned + #at - k + 1
      break
    end
    local gap = slot - last - 1
    if n > 0 and (gap > NEAR or n > 1000) then
      call('SETRANGE', scratch, 8 * from, n > 1 and table.concat(parts, '', 1, n) or parts[1])
      n = 0
    end
    if n == 0 then
      from = slot
    elseif gap > 0 then
      n = n + 1
      zeros[gap] = zeros[gap] or string.rep('\0', 8 * gap)
      parts[n] = zeros[gap]
    end
    n, last = n + 1, slot
    parts[n] = sub(deltas, 8 * k - 7, 8 * k)
  end
  if n > 0 then call('SETRANGE', scratch, 8 * from, table.concat(parts, '', 1, n)) end
end

-- Compute the new checksums of a block, and return whether all of them are zero.
local function weigh(item)
  if not item.header then
    local size = #item.deltas / 8
    zeros[size] = zeros[size] or string.rep('\0', 8 * size)
    return item.deltas == zeros[size]
  elseif item.deltas ~= '' then
    if item.at then spread(item) else call('SET', scratch, item.deltas) end
    item.result, scratched = scratch_of .. item.name, true
    call('BITOP', 'XOR', item.result, item.key, scratch)
  end
  return call('BITPOS', item.result or item.key, '1') == -1
end
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
  local new = item.new and item.new.slots or {}
  if #new > 0 then
    local rows = {}
    for k, slot in ipairs(new) do rows[k] = slot .. ',"' .. escape(item.new.whys[k]) end
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

for _, item in ipairs(work) do
  if item.done then
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
    -- Write the failures before the deltas. If only the deltas survived, for example in a log that
    -- was cut here, the failed trees would be acked.
    if item.stale then call('UNLINK', failed_of .. item.name, present_of .. item.name) end
    if item.after then call('SET', failed_of .. item.name, item.after) end
    if not item.header then
      if item.present ~= '' then call('SET', present_of .. item.name, item.present) end
      call('SET', item.key, item.deltas)
    elseif item.result then
      call('RENAME', item.result, item.key)
    end
    -- A block remembers its last row to within a tick: to write the header costs as much as a row.
    local state = (item.capped and 1 or 0) + (item.present ~= '' and 2 or 0)
      + ((item.before or item.after) and 4 or 0)
    if not item.header or item.to ~= item.bucket or state ~= byte(item.header, 11)
      or item.first + item.last < tonumber(conf_ticked or 0) then
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
return { 1, tracked, acked, failed, overflow + conflict, pending, high_water,
  table.concat(rejected) }
