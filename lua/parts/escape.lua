-- JSON-escape a text of which is_text is true: such a text has no control bytes, so only quotes and
-- backslashes need it. Texts are escaped once, when they are stored. Gives escape.
local function escape(value)
  if string.find(value, '\\', 1, true) then value = string.gsub(value, '\\', '\\\\') end
  if string.find(value, '"', 1, true) then value = string.gsub(value, '"', '\\"') end
  return value
end
