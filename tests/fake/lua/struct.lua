--[[
struct: the part of Redis's struct library that scripts need, in plain Lua.

Formats   > <            big, little endian; little if none is given
          b B h H l L    1, 2 and 8 bytes, signed and unsigned
          i I in In      4 bytes, or n of 1..8
          cn c0          n bytes of a string; c0 packs the whole string; c0 unpacks as many bytes
                         as the number before it says, and replaces that number
          space          ignored
Numbers are Lua numbers: exact up to 2^53, above that the nearest double, as in Redis.
unpack returns the values, then the position after them. Runs on Lua 5.1 to 5.5 and LuaJIT.
Not implemented: x ! s f d T, sizes above 8, struct.size.
--]]
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
local spread = table.unpack or unpack -- luacheck: ignore 113
local WORD = 4294967296
local SIZES = { b = 1, B = 1, h = 2, H = 2, i = 4, I = 4, l = 8, L = 8 }

-- Calls handle(letter, size, big) for each letter; size is nil for a c without a number.
local function each(format, handle)
  local big, at = false, 1
  while at <= #format do
    local letter, digits = string.match(format, '^(.)(%d*)', at)
    local size = tonumber(digits)
    at = at + 1
    if letter == '>' or letter == '<' then
      big = letter == '>'
    elseif letter == 'c' or letter == 'i' or letter == 'I' then
      at = at + #digits
      if letter == 'c' then
        size = size or 1
      else
        size = size or 4
        if size < 1 or size > 8 then
          error('struct: integers of ' .. size .. ' bytes are not supported')
        end
      end
      handle(letter, size, big)
    elseif SIZES[letter] then
      handle(letter, SIZES[letter], big)
    elseif letter ~= ' ' then
      error("struct: format '" .. letter .. "' is not supported")
    end
  end
end

local function to_bytes(number, size, big)
  -- Halves of 32 bits, because 2^64 - 1 is no double. The cast of C truncates towards zero.
  local n = number + 0.0
  n = n < 0 and -floor(-n) or floor(n)
  n = n + 0.0
  local high = floor(n / WORD)
  local low = n - high * (WORD + 0.0)
  if high < 0 then high = high + WORD end
  local bytes = {}
  for i = 1, size do
    local rest = low % 256
    bytes[big and size + 1 - i or i] = char(floor(rest))
    low = (low - rest) / 256
    if i == 4 then low = high end
  end
  return table.concat(bytes)
end

local function to_number(data, at, size, signed, big)
  local high, low = 0, 0
  for i = size, 1, -1 do
    local value = byte(data, big and at + size - i or at + i - 1)
    if i > 4 then high = high * 256 + value else low = low * 256 + value end
  end
  local top = size > 4 and high or low
  if signed and top >= 2 ^ ((size > 4 and size - 4 or size) * 8 - 1) then
    if size > 4 then
      high = high - 2 ^ ((size - 4) * 8)
    else
      low = low - 2 ^ (size * 8)
    end
  end
  -- Only this sum is rounded. In Lua 5.3 and later, floor returns an integer where possible.
  return floor(high * (WORD + 0.0) + low)
end

local struct = {}

function struct.pack(format, ...)
  local values, used, parts = { ... }, 0, {}
  each(format, function(letter, size, big)
    used = used + 1
    local value = values[used]
    if letter == 'c' then
      if type(value) == 'number' then value = tostring(value) end
      if type(value) ~= 'string' then error('struct: string expected, argument ' .. used + 1) end
      if #value < size then error('struct: string too short, argument ' .. used + 1) end
      parts[used] = size == 0 and value or sub(value, 1, size)
    else
      local number = tonumber(value)
      if not number then error('struct: number expected, argument ' .. used + 1) end
      parts[used] = to_bytes(number, size, big)
    end
  end)
  return table.concat(parts)
end

function struct.unpack(format, data, position)
  local at, values, n = position or 1, {}, 0
  if at < 1 then error('struct: offset must be 1 or greater') end
  local function need(size)
    if at + size - 1 > #data then error('struct: data string too short') end
  end
  each(format, function(letter, size, big)
    if letter == 'c' then
      if size == 0 then
        if type(values[n]) ~= 'number' then error("struct: format 'c0' needs a previous size") end
        size, n = values[n], n - 1
      end
      need(size)
      n = n + 1
      values[n] = sub(data, at, at + size - 1)
    else
      need(size)
      n = n + 1
      values[n] = to_number(data, at, size, string.lower(letter) == letter, big)
    end
    at = at + size
  end)
  values[n + 1] = at
  return spread(values, 1, n + 1)
end

return struct
