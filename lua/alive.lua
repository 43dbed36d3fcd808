--[[
alive: return which trees of a batch of anchors are pending, and for which time the shard's memory
is whole; read-only.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  anchors   8n bytes, big-endian, each 1..2^62-1, or with bit 62 of a block, slot 0..4094;
                   n is 1..MAX_ROWS; an anchor may be given twice

Reply    {now ms, since ms, until ms, shards, of, bitmap}
         since, until: of every tree that was tracked between them, the shard knows whether it is
         pending; 0, 0 if that is not known of any time
         of: names the namespace without its salt, as in messages of pub/sub
         bitmap: bit 7 of byte 0 is set if the tree of the first anchor is pending, and so on: it
         was tracked and has no verdict yet, or a key that says so is damaged
Errors   ACKER ARGS | NAMESPACE | SCHEMA | SHARD <words>
--]]
-- part: begin
local anchors = ARGV[1]
local byte, sub, pack = string.byte, string.sub, struct.pack
-- From lua/spec.json, by python -m proof.spec
local MAX_ROWS, MAX_SLOTS = 1024, 4095

if #KEYS ~= 2 or #ARGV ~= 1 or meta ~= shard .. ':meta' or #anchors % 8 ~= 0
  or #anchors < 8 or #anchors > 8 * MAX_ROWS then
  return refuse('ARGS', 'needs two keys (shard, shard:meta) and 8 bytes for each of 1 to '
    .. MAX_ROWS .. ' anchors')
end
local conf = call('HMGET', meta, 'schema', 'shard', 'shards', 'buckets', 'current', 'salt', 'whole',
  'reshard')
-- part: schema
local conf_buckets, conf_current = conf[4], conf[5]
-- part: ring

-- For each anchor the field of its record or header, and its slot in a block.
local field_of, slot_of = {}, {}
local loose, blocks, seen = {}, {}, {}
for k = 1, #anchors / 8 do
  local field, slot, list = sub(anchors, 8 * k - 7, 8 * k), nil, loose
  local high, low = struct.unpack('>I4I4', field)
  if high >= 2 ^ 30 then
    slot, list = low % 4096, blocks
    -- The number of the block, 50 bits in 8 bytes.
    local top = math.floor((high - 2 ^ 30) / 4096)
    field = pack('>I4I4', top, (high % 4096) * 2 ^ 20 + math.floor(low / 4096))
  end
  if high >= 2 ^ 31 or slot == MAX_SLOTS or (high == 0 and low == 0) then
    return refuse('ARGS', 'anchor ' .. k - 1 .. ' must be 1..2^62-1, or have bit 62 set and a slot '
      .. '0..4094')
  end
  local _, last = struct.unpack('>I4I4', field)
  if last % conf[3] ~= tonumber(conf[2]) then
    return refuse('SHARD', 'anchor ' .. k - 1 .. ' does not belong to shard ' .. conf[2] .. ' of '
      .. conf[3] .. '; the namespace was resharded, or dropped and created again: open it again')
  end
  field_of[k], slot_of[k] = field, slot
  local key = (slot and 'b' or 'l') .. field
  if not seen[key] then
    list[#list + 1], seen[key] = field, true
  end
end

-- Return what the buckets hold of fields, by field. Values that are no tree are ignored: after a
-- tick a late row may have made another record of a tree that is still expiring.
local function look(fields, kind, expiring, is_tree)
  local found = {}
  for k = 0, buckets do
    if #fields == 0 then break end
    local place, rest = k < buckets and kind .. (current - k) % buckets or expiring, {}
    for i, value in ipairs(call('HMGET', shard .. place, unpack(fields))) do
      if value and is_tree(value) then
        found[fields[i]] = value
      else
        rest[#rest + 1] = fields[i]
      end
    end
    fields = rest
  end
  return found
end

-- A record without a tree has no task. A value that no script writes counts as a tree.
local records = look(loose, ':pending:', ':expiring', function(record)
  return byte(record, 20) ~= 0
end)
local headers = look(blocks, ':blocks:', ':blocks_expiring', function() return true end)

-- Return the bitmap of a block that its header announces with a flag; '' if it announces none.
local bitmaps = {}
local function bitmap_of(field, name, flag)
  local flags = byte(headers[field], 11) or 0
  if bit.band(flags, flag) == 0 then return '' end
  local key = name .. string.format('%05x%08x', struct.unpack('>I4I4', field))
  if not bitmaps[key] then bitmaps[key] = call('GET', shard .. key) or '' end
  return bitmaps[key]
end

-- Return whether a slot has a bit; missing: the answer where the bitmap ends before it.
local function has(bitmap, slot, missing)
  local value = byte(bitmap, math.floor(slot / 8) + 1)
  if not value then return missing end
  return bit.band(value, 2 ^ (7 - slot % 8)) > 0
end

local function is_pending(k)
  local field, slot = field_of[k], slot_of[k]
  if not slot then return records[field] ~= nil end
  local header = headers[field]
  if not header then return false end
  local high, low = byte(header, 12, 13)
  if low and slot >= 256 * high + low then return false end
  return has(bitmap_of(field, ':present:', 2), slot, true)
    and not has(bitmap_of(field, ':failed:', 4), slot, false)
end

local bytes = {}
for from = 1, #field_of, 8 do
  local value = 0
  for k = from, math.min(from + 7, #field_of) do
    if is_pending(k) then value = value + 2 ^ (7 - (k - from)) end
  end
  bytes[#bytes + 1] = string.char(value)
end
local since, last = string.match(conf[7] or '', '^(%d+):(%d+):%x+$')
if conf[8] or not last or #since > 15 or #last > 15 then since, last = 0, 0 end
-- part: clock
return { now, tonumber(since), tonumber(last), tonumber(conf[3]),
  sub(redis.sha1hex('feed:' .. (conf[6] or '')), 1, 16), table.concat(bytes) }
