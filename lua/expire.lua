--[[
expire: drain the expiring bucket, some records per call, and nack the tracked ones.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  records   about how many to drain, 1..1000

Reply    {nacked, orphaned, records left to drain}; 0 left: the bucket is drained
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
-- part: begin
-- A call stops early after this many bytes of verdicts, or verdicts for this many tasks.
local MAX_BYTES, MAX_GROUPS, MAX_ARGS = 192 * 1024, 500, 1000
local byte, sub, find = string.byte, string.sub, string.find
local format, hex = string.format, bit.tohex

-- part: keys
if #ARGV ~= 1 then return refuse('ARGS', 'needs two keys and one argument') end
local count = find(ARGV[1], '^[1-9][0-9]*$') and tonumber(ARGV[1])
if not count or count > 1000 then return refuse('ARGS', 'records must be 1 to 1000') end
local conf = call('HMGET', meta, 'schema', 'cursor', 'publish', 'edges', 'unfinished:left',
  'salt')
-- part: schema
local expiring = shard .. ':expiring'
-- part: clock
local conf_edges = conf[4] or ''
-- part: odd
local conf_salt = conf[6]
-- part: feed

-- Continue from the cursor of the last call: a scan from 0 would pass all the entries that
-- earlier calls have deleted.
local page = call('HSCAN', expiring, conf[2], 'COUNT', count)
local found, fields = page[2], {}
local taken, groups, by_task, ages, idles, bytes, nacked = {}, {}, {}, {}, {}, 0, 0
local stopped = false
for i = 1, #found, 2 do
  if bytes >= MAX_BYTES or #groups >= MAX_GROUPS then
    stopped = true
    break
  end
  local id, record = found[i], found[i + 1]
  taken[#taken + 1] = id
  -- An entry that is not a valid record has no tree. It must not stop the drain of the others.
  local from = #id == 8 and 21 + (byte(record, 20) or 0) or 21
  if from > 21 then
    local task = sub(record, 21, from - 1)
    local high, low = struct.unpack('>I4I4', id)
    local odd_high, odd_low, state, first, last = struct.unpack('>I4I4BI6I4', record)
    if not ages[first] then ages[first] = format('",%.0f,"', math.max(0, now - first)) end
    -- Until 49 days after the first row, the last one is known exactly.
    last = first + last
    if not idles[last] then idles[last] = format('",%.0f]', math.max(0, now - last)) end
    local row = '["' .. hex(high) .. hex(low) .. '","' .. sub(record, from) .. ages[first]
      .. (state > 1 and 'deadline","' or 'idle","') .. hex(odd_high) .. hex(odd_low) .. idles[last]
    see(odd_high)
    local group = by_task[task]
    if not group then
      group = { task = task, key = shard .. ':outcomes:' .. task, rows = {} }
      by_task[task] = group
      groups[#groups + 1] = group
      fields[#fields + 1], fields[#fields + 2] = 'backlog:' .. task, 'ended:' .. task
    end
    group.rows[#group.rows + 1] = row
    bytes, nacked = bytes + #row, nacked + 1
  end
end
-- One command for the fields of all tasks.
local numbers = #fields > 0 and call('HMGET', meta, unpack(fields)) or {}
for k, group in ipairs(groups) do
  local kind, backlog = call('TYPE', group.key).ok, tonumber(numbers[2 * k - 1] or 0)
  local ended = tonumber(numbers[2 * k]) or 0
  if kind ~= 'stream' and kind ~= 'none' or not backlog then
    return refuse('SCHEMA', group.key .. ' or its backlog has been tampered with')
  end
  fields[4 * k - 3], fields[4 * k - 2] = 'backlog:' .. group.task, backlog + #group.rows
  fields[4 * k - 1], fields[4 * k] = 'ended:' .. group.task, ended + #group.rows
end

-- maxmemory does not refuse this first write, and the later ones are not checked. Verdicts are
-- written before their records are deleted: if a write raised an error, a tree could get two
-- verdicts, but never none.
call('UNLINK', shard)
for _, group in ipairs(groups) do
  group.json = '[' .. table.concat(group.rows, ',') .. ']'
  call('XADD', group.key, '*', 'verdict', 'nack', 'reason', 'expired', 'n', #group.rows,
    'rows', group.json)
end
for from = 1, #taken, MAX_ARGS do
  call('HDEL', expiring, unpack(taken, from, math.min(from + MAX_ARGS - 1, #taken)))
end
if #fields > 0 then call('HSET', meta, unpack(fields)) end
for _, group in ipairs(groups) do
  if conf[3] == 'yes' then
    publish('nack', group.task, '{"verdict":"nack","reason":"expired","n":' .. #group.rows
      .. ',"rows":', group.json)
  end
end
local orphaned = #taken - nacked
if nacked > 0 then
  call('HINCRBY', meta, 'expired', nacked)
  count_odd()
end
if orphaned > 0 then
  call('HINCRBY', meta, 'orphaned', orphaned)
  local late = math.min(orphaned, tonumber(conf[5]) or 0)
  if late > 0 then
    redis.pcall('HINCRBY', meta, 'unfinished:left', 0 - late)
    redis.pcall('HINCRBY', meta, 'after_failure', late)
  end
end
if not stopped then
  -- A page that was not processed whole is read again.
  call('HSET', meta, 'cursor', page[1])
end
return { nacked, orphaned, call('HLEN', expiring) }
