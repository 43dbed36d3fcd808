--[[
show: return the state of one tree, and of the block it belongs to; read-only.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  anchor    8 bytes, big-endian: 1..2^62-1, or with bit 62 of a block, slot 0..4094

Reply    {now ms, age, record}
         of a loose tree; age: of its bucket, 0 = the newest, the number of buckets = it expires
         {now ms, age, header, checksums, failed, present}
         of a slot of a pending block; failed, present: bitmaps of the slots that have failed, and
         that hold a tree; failed is '' if none has, present is '' if all do
         {now ms}
         the anchor is not pending
Errors   ACKER ARGS | NAMESPACE | SCHEMA | SHARD <words>
--]]
-- part: begin
local anchor = ARGV[1]

if #KEYS ~= 2 or #ARGV ~= 1 or meta ~= shard .. ':meta' or #anchor ~= 8 then
  return refuse('ARGS', 'needs two keys (shard, shard:meta) and 8 bytes of an anchor')
end
local high, low = struct.unpack('>I4I4', anchor)
local in_block, slot = high >= 2 ^ 30, low % 4096
if high >= 2 ^ 31 or (in_block and slot == 4095) or (high == 0 and low == 0) then
  return refuse('ARGS', 'the anchor must be 1..2^62-1, or have bit 62 set and a slot 0..4094')
end
local conf = call('HMGET', meta, 'schema', 'shard', 'shards', 'buckets', 'current')
-- part: schema
local conf_buckets, conf_current = conf[4], conf[5]
-- part: ring
local field, kind, expiring = anchor, ':pending:', ':expiring'
if in_block then
  -- The number of the block, 50 bits in 8 bytes.
  local top = math.floor((high - 2 ^ 30) / 4096)
  field = struct.pack('>I4I4', top, (high % 4096) * 2 ^ 20 + math.floor(low / 4096))
  kind, expiring = ':blocks:', ':blocks_expiring'
end
local _, last = struct.unpack('>I4I4', field)
if last % conf[3] ~= tonumber(conf[2]) then
  return refuse('SHARD', 'the anchor does not belong to shard ' .. conf[2] .. ' of ' .. conf[3]
    .. '; the namespace was resharded, or dropped and created again: open it again')
end
local found, age
for k = 0, buckets do
  local place = k < buckets and kind .. (current - k) % buckets or expiring
  found = call('HGET', shard .. place, field)
  if found then
    age = k
    break
  end
end
-- part: clock
if not found then
  return { now }
elseif not in_block then
  return { now, age, found }
end
local name = string.format('%05x%08x', struct.unpack('>I4I4', field))
-- If the header announces no absent slots, the bitmap is a stale one, of a block that has ended.
local partial = bit.band(string.byte(found, 11) or 0, 2) > 0
return { now, age, found, call('GET', shard .. ':block:' .. name),
  call('GET', shard .. ':failed:' .. name) or '',
  partial and call('GET', shard .. ':present:' .. name) or '' }
