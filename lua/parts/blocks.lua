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
      .. ' of ' .. shards .. '; the namespace was resharded, or dropped and created again: open it '
      .. 'again')
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
