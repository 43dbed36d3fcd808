-- Read and validate the rows of a batch. Needs flags, anchors, deltas, task, conf, shards,
-- shard_number, is_text, escape. Gives n, tracks, fails (number of rows, with TRACK and with FAIL),
-- and for each row flag[r], ids[r] (8 bytes), anchor and delta as halves, the high one first
-- (anchor[2 * r - 1], anchor[2 * r]), and row_of[id]. Escapes the texts in ARGV.
-- From lua/spec.json, by python -m proof.spec
local MAX_ROWS, MAX_TEXTS, MAX_TEXT = 1024, 64 * 1024, 255
local MAX_TASKS, MAX_NAME = 1000, 64

local n = #flags
if n < 1 or n > MAX_ROWS then
  return refuse('ARGS', 'a batch has 1 to ' .. MAX_ROWS .. ' rows, this one has ' .. n)
elseif #anchors ~= 8 * n or #deltas ~= 8 * n then
  return refuse('ARGS', 'anchors and deltas need 8 bytes for each of ' .. n .. ' rows')
elseif find(flags, '[^%z\1-\7]') then
  return refuse('ARGS', 'unknown flag; the flags are TRACK 1, FAIL 2, TOUCH 4')
end
local tracks = select(2, string.gsub(flags, '[\1\3\5\7]', ''))
local fails = select(2, string.gsub(flags, '[\2\3\6\7]', ''))
if #ARGV ~= 6 + tracks + fails then
  return refuse('ARGS', tracks .. ' TRACK and ' .. fails .. ' FAIL rows need one text each; the '
    .. 'number of texts is ' .. #ARGV - 6)
elseif (tracks > 0) ~= (task ~= '') then
  return refuse('ARGS', 'a task must be given with TRACK rows, and must be empty without them')
elseif task ~= '' and (#task > MAX_NAME or find(task, '[^A-Za-z0-9_.-]')) then
  return refuse('ARGS', 'a task must be 1 to ' .. MAX_NAME .. ' characters of A-Z a-z 0-9 _ . -')
elseif tracks > 0 and not conf[10] and tonumber(conf[11] or 0) >= MAX_TASKS then
  return refuse('ARGS', 'a shard has at most ' .. MAX_TASKS
    .. ' tasks; an idle task is forgotten after 100 ticks, once its verdicts are taken')
end

-- Most texts are printable ASCII without quotes and backslashes, which needs no escape.
local PLAIN = '^[\93-\126\35-\91\32\33]*$'
local bytes, others, other_texts = 0, {}, {}
for i = 7, #ARGV do
  local text = ARGV[i]
  bytes = bytes + #text
  if #text > MAX_TEXT or (#text == 0 and i <= 6 + tracks) then
    return refuse('ARGS', 'a source id must have 1 to ' .. MAX_TEXT .. ' bytes and a why up to '
      .. MAX_TEXT .. '; text ' .. i - 7 .. ' has ' .. #text)
  elseif bytes > MAX_TEXTS then
    return refuse('ARGS', 'the texts of a batch have at most ' .. MAX_TEXTS .. ' bytes in all')
  elseif not find(text, PLAIN) then
    others[#others + 1], other_texts[#others + 1] = i, text
  end
end
local all_clean = is_text(table.concat(other_texts, ' '))
for _, i in ipairs(others) do
  if not all_clean and not is_text(ARGV[i]) then
    return refuse('ARGS', 'text ' .. i - 7 .. ' is not UTF-8 or has a control byte')
  end
  ARGV[i] = escape(ARGV[i])
end

-- All rows in one call for each column: a call per row would cost more than its work. Each value
-- becomes two numbers, the high half first. unpack adds a position at the end, which is removed.
local flag = { byte(flags, 1, n) }
local ids = { unpack_bytes(string.rep('c8', n), anchors) }
local anchor = { unpack_bytes('>' .. string.rep('I4I4', n), anchors) }
local delta = { unpack_bytes('>' .. string.rep('I4I4', n), deltas) }
ids[n + 1] = nil
local row_of = {}
for r = 1, n do
  local id, high, low = ids[r], anchor[2 * r - 1], anchor[2 * r]
  if high >= 2 ^ 30 or id == '\0\0\0\0\0\0\0\0' then
    return refuse('ARGS', 'anchor of row ' .. r - 1 .. ' is not in 1..2^62-1')
  elseif row_of[id] then
    return refuse('ARGS', 'anchor of row ' .. r - 1 .. ' is given twice; fold rows per anchor')
  elseif delta[2 * r - 1] >= 2 ^ 31 then
    return refuse('ARGS', 'delta of row ' .. r - 1 .. ' is above 2^63-1')
  elseif low % shards ~= shard_number then
    return refuse('SHARD', 'anchor of row ' .. r - 1 .. ' does not belong to shard '
      .. shard_number .. ' of ' .. shards .. '; the namespace was resharded, or dropped and '
      .. 'created again: open it again')
  end
  row_of[id] = r
end
