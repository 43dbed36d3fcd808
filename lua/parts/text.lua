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
