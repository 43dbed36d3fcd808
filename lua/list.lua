--[[
list: return a page of the pending records or blocks, the oldest bucket first; read-only.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  kind      pending = records of loose trees, blocks = headers of blocks
ARGV[2]  bucket    number of a bucket from an earlier reply, digits; 0 = begin with the oldest
ARGV[3]  cursor    from an earlier reply, digits; 0 = begin at the start of this bucket
ARGV[4]  count     about how many records to scan, 1..1000; the call stops early at 128 KiB
ARGV[5]  text      '' = all; else only trees tracked with this source id or label, up to
                   MAX_TEXT bytes
ARGV[6]  task      '' = all; else only trees that this task has tracked
ARGV[7]  match     prefix = the text is a prefix; '' or missing = it is the whole text

Reply    {now ms, shards, bucket, age, cursor, looked, page}
         bucket: the one that was read; empty ones are skipped; a number that no longer exists,
         or not yet, means the oldest bucket from its start; age: of the bucket, 0 = the newest,
         the number of buckets = it expires; cursor: 0 = this bucket is finished, bucket + 1 is
         next unless the age is 0; looked: records scanned; page: field, record, field, record, ..
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>
--]]
-- part: begin
local kind, cursor, text, task = ARGV[1], ARGV[3], ARGV[5], ARGV[6]
local prefix = ARGV[7] == 'prefix'
-- From lua/spec.json, by python -m proof.spec
local MAX_TEXT, MAX_NAME = 255, 64

local STEP, MAX_BYTES = 100, 128 * 1024
local byte, sub, find = string.byte, string.sub, string.find

if #KEYS ~= 2 or #ARGV < 6 or #ARGV > 7 or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys (shard, shard:meta) and six or seven arguments')
elseif (ARGV[7] or '') ~= '' and ARGV[7] ~= 'prefix' then
  return refuse('ARGS', "match must be prefix or ''")
elseif kind ~= 'pending' and kind ~= 'blocks' then
  return refuse('ARGS', 'kind must be pending or blocks')
elseif #ARGV[2] > 15 or #cursor > 19 or not find(ARGV[2] .. ',' .. cursor, '^%d+,%d+$') then
  return refuse('ARGS', 'bucket and cursor must be 0, or numbers from an earlier reply')
elseif #text > MAX_TEXT or #task > MAX_NAME then
  return refuse('ARGS', 'a source id or label must have up to ' .. MAX_TEXT
    .. ' bytes, a task up to ' .. MAX_NAME)
end
local count = find(ARGV[4], '^[1-9][0-9]*$') and tonumber(ARGV[4])
if not count or count > 1000 then return refuse('ARGS', 'count must be 1 to 1000') end
local conf = call('HMGET', meta, 'schema', 'shards', 'buckets', 'current', 'ticks')
-- part: schema
-- part: escape
local shards = find(conf[2] or '', '^[1-9]%d?%d?%d?$') and tonumber(conf[2])
if not shards then return refuse('SCHEMA', meta .. ' has been tampered with: shards') end
local conf_buckets, conf_current = conf[3], conf[4]
-- part: ring

-- A bucket's age grows with each tick, and its key is reused. Only the number of the tick that
-- began the bucket identifies it for its whole life. The number of buckets is added, so that the
-- result is never negative. An expiring bucket has another key but is the same hash table, so a
-- cursor stays valid.
local ticks = #(conf[5] or '') <= 15 and find(conf[5] or '', '^%d+$') and tonumber(conf[5]) or 0
local newest = ticks + buckets
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

-- Scan in small steps, to stop early at long records: the page of a scan cannot be split.
local at, page, n, looked, bytes = kind == 'pending' and 20 or 22, {}, 0, 0, 0
-- Records hold their source id escaped, headers their label as it is.
if kind == 'pending' then text = escape(text) end
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
return { now, shards, newest - age, age, cursor, looked, page }
