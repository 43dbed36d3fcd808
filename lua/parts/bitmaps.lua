-- Bitmaps of slots: ceil(n / 8) bytes, bit 7 of byte 0 is slot 0, as SETBIT counts; the bits after
-- the last slot are 0. Gives width(slots), the bytes of a bitmap; ones(bitmap), the number of its
-- slots; has(bitmap, slot); with(bitmap, slots, width), a copy with more slots; and to_hex(bitmap).
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
  known[char] = string.format('%02x', string.byte(char))
  return known[char]
end })

local function ones(bitmap)
  local sum = 0
  for _, value in ipairs({ string.byte(bitmap, 1, #bitmap) }) do sum = sum + counted[value] end
  return sum
end

local function has(bitmap, slot)
  local value = string.byte(bitmap, math.floor(slot / 8) + 1) or 0
  return math.floor(value / 2 ^ (7 - slot % 8)) % 2 == 1
end

-- A bitmap that is nil has no slots.
local function with(bitmap, slots, bytes)
  local values = { string.byte(bitmap or string.rep('\0', bytes), 1, bytes) }
  for _, slot in ipairs(slots) do
    local at, bit_value = math.floor(slot / 8) + 1, 2 ^ (7 - slot % 8)
    if math.floor(values[at] / bit_value) % 2 == 0 then values[at] = values[at] + bit_value end
  end
  return string.char(unpack(values))
end

local function to_hex(bitmap)
  return (string.gsub(bitmap, '.', hexed))
end
