-- Check that a text is UTF-8 without control bytes. Gives is_text.
local is_text
do
  -- UTF-8 from U+0080 up, without overlong forms or surrogates.
  local SEQUENCES = { '[\194-\223][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
    '\224[\160-\191][\128-\191]', '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]' }

  function is_text(text)
    if string.find(text, '^[\32-\126]*$') then return true end
    -- Replace each well-formed sequence by one letter; any other byte that remains is invalid.
    for _, sequence in ipairs(SEQUENCES) do
      text = string.gsub(text, sequence, 'x')
      if string.find(text, '^[\32-\126]*$') then return true end
    end
    return false
  end
end
