--[[
struct: the part of Redis's struct library that our scripts use, in plain Lua. The cases prove it.

Formats   >              big endian, first, and needed for numbers of several bytes
          B I In         unsigned numbers of 1, 4, or n = 1..8 bytes
          cn c0          n bytes of a string; c0 unpacks as many bytes as the number before it says,
                         and replaces that number
Numbers are Lua numbers: exact up to 2^53, above that the nearest double, as in Redis.
unpack returns the values, then the position after them. Runs on Lua 5.1 to 5.5 and LuaJIT.
--]]
local byte, char, sub, floor = string.byte, string.char, string.sub, math.floor
local spread = table.unpack or unpack -- luacheck: ignore 113
local WORD = 4294967296

-- Calls handle(letter, size) for each letter.
local function each(format, handle)
  local big = sub(format, 1, 1) == '>'
  local rest = string.gsub(sub(format, big and 2 or 1), '([BIc])(%d*)', function(letter, digits)
    if letter == 'I' and not big then error('struct: only big endian is supported') end
    handle(letter, tonumber(digits) or letter == 'I' and 4 or 1)
    return ''
  end)
  if rest ~= '' then error("struct: format '" .. rest .. "' is not supported") end
end

local function to_bytes(number, size)
  -- Halves of 32 bits, because 2^64 - 1 is no double.
  local high = floor(number / WORD)
  local low = floor(number) - high * (WORD + 0.0)
  local bytes = {}
  for i = size, 1, -1 do
    local rest = low % 256
    bytes[i] = char(floor(rest))
    low = (low - rest) / 256
    if i == size - 3 then low = high end
  end
  return table.concat(bytes)
end

local function to_number(data, at, size)
  local high, low = 0, 0
  for i = at, at + size - 1 do
    if i < at + size - 4 then
      high = high * 256 + byte(data, i)
    else
      low = low * 256 + byte(data, i)
    end
  end
  -- Only this sum is rounded. In Lua 5.3 and later, floor returns an integer where possible.
  return floor(high * (WORD + 0.0) + low)
end

local struct = {}

function struct.pack(format, ...)
  local values, used, parts = { ... }, 0, {}
  each(format, function(letter, size)
    used = used + 1
    if letter == 'c' then error('struct: packing of strings is not supported') end
    local number = tonumber(values[used])
    if not number then error('struct: number expected, argument ' .. used + 1) end
    parts[used] = to_bytes(number, size)
  end)
  return table.concat(parts)
end

function struct.unpack(format, data, position)
  local at, values, n = position or 1, {}, 0
  if at < 1 then error('struct: offset must be 1 or greater') end
  local function need(size)
    if at + size - 1 > #data then error('struct: data string too short') end
  end
  each(format, function(letter, size)
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
      values[n] = to_number(data, at, size)
    end
    at = at + size
  end)
  values[n + 1] = at
  return spread(values, 1, n + 1)
end

return struct
