--[[
list: read a page of what is pending, the oldest bucket first; reads only.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  kind      pending = records of loose trees, blocks = headers of blocks
ARGV[2]  bucket    the number that a reply gave it, digits; 0 = begin with the oldest
ARGV[3]  cursor    as a reply gave it, digits; 0 = begin with this bucket
ARGV[4]  count     how many records to look at about, 1..1000; it stops early at 128 KiB
ARGV[5]  text      '' = all; else only what was tracked under this source id or label, up to
                   255 bytes
ARGV[6]  task      '' = all; else only what this task has tracked
ARGV[7]  match     prefix = the text is a prefix; '' or left out = it is the whole text

Reply    {now ms, shards, bucket, age, cursor, looked, page}
         bucket: which was read; an empty one is passed over, and one that is there no more or
         not yet is the oldest, from its beginning; age: of it, 0 the newest, as many as there
         are if it expires; cursor: 0 if the bucket is through, then bucket + 1 is next, unless
         the age is 0; looked: records looked at; page: field, record, field, record, ..
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>
--]]
-- part: begin
local kind, cursor, text, task = ARGV[1], ARGV[3], ARGV[5], ARGV[6]
local prefix = ARGV[7] == 'prefix'
local STEP, MAX_BYTES = 100, 128 * 1024
local byte, sub, find = string.byte, string.sub, string.find

if #KEYS ~= 2 or #ARGV < 6 or #ARGV > 7 or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'two keys (shard, shard:meta) and six or seven arguments are needed')
elseif (ARGV[7] or '') ~= '' and ARGV[7] ~= 'prefix' then
  return refuse('ARGS', "match is prefix or ''")
elseif kind ~= 'pending' and kind ~= 'blocks' then
  return refuse('ARGS', 'a kind is pending or blocks')
elseif #ARGV[2] > 15 or #cursor > 19 or not find(ARGV[2] .. ',' .. cursor, '^%d+,%d+$') then
  return refuse('ARGS', 'bucket and cursor are numbers, as a reply gave them, or 0')
elseif #text > 255 or #task > 64 then
  return refuse('ARGS', 'a source id or label has up to 255 bytes, a task up to 64')
end
local count = find(ARGV[4], '^[1-9][0-9]*$') and tonumber(ARGV[4])
if not count or count > 1000 then return refuse('ARGS', 'count is 1 to 1000') end
local conf = call('HMGET', meta, 'schema', 'shards', 'buckets', 'current', 'ticks')
-- part: schema
local buckets, current = tonumber(conf[3]), tonumber(conf[4])

-- A bucket's age grows with each tick, and its key is used again. What stays with it from its
-- first record to its last is the number of the tick that began it; buckets are added, so that
-- it is never negative. The key of what expires is another, but the table is the same: a cursor
-- goes on where it stood.
local newest = tonumber(conf[5] or 0) + buckets
local age = newest - ARGV[2]
if age < 0 or age > buckets then age, cursor = buckets, '0' end
local key
while true do
  key = kind .. ':' .. (current - age) % buckets
  if age == buckets then key = kind == 'pending' and 'expiring' or 'blocks_expiring' end
  key = shard .. ':' .. key
  if age == 0 or call('HLEN', key) > 0 then break end
  age, cursor = age - 1, '0'
end

-- In steps, so that it can stop at long records: a step of a scan cannot be taken by halves.
local at, page, n, looked, bytes = kind == 'pending' and 16 or 17, {}, 0, 0, 0
for from = 1, count, STEP do
  local step = call('HSCAN', key, cursor, 'COUNT', math.min(STEP, count - from + 1))
  local records = step[2]
  cursor, looked = step[1], looked + #records / 2
  for i = 1, #records, 2 do
    local record = records[i + 1]
    local matches = text == '' and task == ''
    if not matches then
      -- A record or a header ends with the length of the task, the task, and the text.
      local length = byte(record, at) or 0
      local begins = at + length + 1
      matches = length > 0 and (prefix or text == '' or #record == begins - 1 + #text)
        and (task == '' or sub(record, at + 1, at + length) == task)
        and (text == '' or sub(record, begins, begins - 1 + #text) == text)
    end
    if matches then page[n + 1], page[n + 2], n = records[i], record, n + 2 end
    bytes = bytes + #record
  end
  if cursor == '0' or looked >= count or bytes >= MAX_BYTES then break end
end
-- part: clock
return { now, tonumber(conf[2]), newest - age, age, cursor, looked, page }
