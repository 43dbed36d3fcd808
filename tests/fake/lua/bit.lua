--[[
bit: the part of LuaBitOp that our scripts use, in plain Lua, for a fake Redis without LuaBitOp.

Arguments are numbers (or strings that contain numbers) up to 2^51 in size; only the low 32 bits
of each count. Results are signed, -2^31..2^31-1. Runs on Lua 5.1 to 5.5 and LuaJIT.
The cases prove it.
--]]
local floor = math.floor
local WORD = 4294967296
-- Adding and subtracting it rounds to the nearest whole number, halves to even, as LuaBitOp does.
local ROUND = 6755399441055744

local function unsigned(x) return ((x + ROUND + 0.0) - ROUND) % WORD end

local function signed(x)
  if x >= WORD / 2 then x = x - WORD end
  return floor(x)
end

local AND = {}
for a = 0, 15 do
  for b = 0, 15 do
    local both, x, y, power = 0, a, b, 1
    while power < 16 do
      if x % 2 == 1 and y % 2 == 1 then both = both + power end
      x, y, power = floor(x / 2), floor(y / 2), power * 2
    end
    AND[a * 16 + b] = both
  end
end

local function both(a, b)
  local result, power = 0, 1
  while a > 0 and b > 0 do
    local x, y = a % 16, b % 16
    result = result + AND[x * 16 + y] * power
    a, b, power = (a - x) / 16, (b - y) / 16, power * 16
  end
  return result
end

local function fold(step)
  return function(first, ...)
    local result = unsigned(first)
    for i = 1, select('#', ...) do result = step(result, unsigned((select(i, ...)))) end
    return signed(result)
  end
end

local bit = {
  band = fold(both),
  bor = fold(function(a, b) return a + b - both(a, b) end),
  bxor = fold(function(a, b) return a + b - 2 * both(a, b) end),
}

function bit.tobit(x) return signed(unsigned(x)) end

function bit.rshift(x, by) return signed(floor(unsigned(x) / 2 ^ (unsigned(by) % 32))) end

function bit.tohex(x)
  x = unsigned(x)
  -- In halves, because some Lua versions convert %x to a C int, which would truncate the word.
  return string.format('%04x%04x', floor(x / 65536), floor(x % 65536))
end

return bit
