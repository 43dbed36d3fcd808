-- Bitmaps of slots: ceil(n / 8) bytes, bit 7 of byte 0 is slot 0, as SETBIT counts; the bits after
-- the last slot are 0. Gives width(slots), the bytes of a bitmap; ones(bitmap), the number of its
-- slots; has(bitmap, slot); with(bitmap, slots, width), a copy with more slots; to_hex(bitmap); and
-- is_bitmap(bitmap, slots, present): whether no call can have written anything else.
local band, bor, rshift, byte_of = bit.band, bit.bor, bit.rshift, string.byte
local MASKS = { [0] = 128, 64, 32, 16, 8, 4, 2, 1 }

local function width(slots)
  return math.ceil(slots / 8)
end

-- Tables of what a byte has and reads, made when they are first needed: most calls have no bitmap.
local counted, hexed

local function ones(bitmap)
  counted = counted or setmetatable({}, { __index = function(known, value)
    local rest, bits = value, 0
    while rest > 0 do rest, bits = math.floor(rest / 2), bits + rest % 2 end
    known[value] = bits
    return bits
  end })
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
  hexed = hexed or setmetatable({}, { __index = function(known, char)
    known[char] = string.format('%02x', byte_of(char))
    return known[char]
  end })
  return (string.gsub(bitmap, '.', hexed))
end
