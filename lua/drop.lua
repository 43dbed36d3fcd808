--[[
drop: remove a shard in bounded calls. The first call closes the shard: meta becomes
<shard>:dropping, and all other scripts reply NAMESPACE from then on. An interrupted drop is run
again from its first call.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  blocks    0 = close the shard; 1..1000 = remove at most this many blocks, and never more
                   than MAX_REMOVED a call; when no block is left, remove everything else
ARGV[2]  last      1 = then remove <shard>:dropping too, which holds the configuration; 0 = keep it
ARGV[3]  reshard   optional; '<from>:<to>' = close only a shard that this reshard removes and that
                   is ready for it: its reshard is <from>:<to>:switch, its shards <to>

Reply    {left, shards}
         left: blocks to remove, plus 1 for everything else; 0 when a call has removed all
         shards: from the configuration; during a reshard (configure.lua) the greater of the two
         numbers, because shards of both may exist; MAX_SHARDS if the configuration
         is damaged
         {0, 0}: the shard does not exist, or not any longer
Errors   ACKER ARGS | SCHEMA | EXISTS | RESHARD <words>; nothing was changed. A shard is removed
         also if its configuration is damaged; a shard 0 of another schema is refused.
--]]
-- part: begin
-- From lua/spec.json, by python -m proof.spec
local MAX_BUCKETS, MAX_SHARDS = 16, 1024

local MAX_REMOVED, MAX_ARGS = 500, 1000
local find = string.find

if #KEYS ~= 2 or #ARGV < 2 or #ARGV > 3 or meta ~= shard .. ':meta'
  or not find(shard, '^acker:{[A-Za-z0-9_.-]+:[0-9]+}$') then
  return refuse('ARGS', 'needs two keys, acker:{<namespace>:<shard>} and the same with :meta, and '
    .. 'two or three arguments')
end
local count = (ARGV[1] == '0' or find(ARGV[1], '^[1-9][0-9]*$')) and tonumber(ARGV[1])
if not count or count > 1000 then return refuse('ARGS', 'blocks must be 0 to 1000') end
count = math.min(count, MAX_REMOVED)
if ARGV[2] ~= '0' and ARGV[2] ~= '1' then return refuse('ARGS', 'last must be 0 or 1') end
local target = string.match(ARGV[3] or '', '^[1-9][0-9]*:([1-9][0-9]*)$')
if ARGV[3] and not target then return refuse('ARGS', 'reshard must be <from>:<to>') end

local dropping = shard .. ':dropping'
local open, closed = call('TYPE', meta).ok, call('TYPE', dropping).ok
if open == 'none' and closed == 'none' then return { 0, 0 } end
local config = open == 'none' and dropping or meta
local conf = (config == meta and open or closed) == 'hash'
  and call('HMGET', config, 'schema', 'shards', 'drop_cursor', 'reshard') or {}
-- Another version knows its keys. Anything else than a number is damage, as no field is, and so is
-- another number beside a shard 0 of schema 2, which is closed first.
if conf[1] ~= '2' and find(conf[1] or '', '^%d+$') and find(shard, ':0}$') then
  return refuse('SCHEMA', 'this script supports schema 2 only, the namespace has another; use the '
    .. 'version of acker-redis that wrote it')
end
local shards = find(conf[2] or '', '^[1-9]%d?%d?%d?$') and tonumber(conf[2])
for number in string.gmatch(shards and conf[4] or '', '%d+') do
  shards = math.max(shards, tonumber(number))
end
if not shards or shards > MAX_SHARDS then shards = MAX_SHARDS end
if open ~= 'none' and target and (conf[4] ~= ARGV[3] .. ':switch' or conf[2] ~= target) then
  -- A late client that completes an old reshard must not remove a shard of a newer one.
  return refuse('RESHARD', shard .. ' is not to be removed by the reshard ' .. ARGV[3]
    .. ', or not yet')
end
if open ~= 'none' and count > 0 then
  -- A late client that completes an old drop must not remove a shard that was created since.
  return refuse('EXISTS', shard .. ' was created again after this drop began; to drop it too, run '
    .. 'drop again')
end

-- Each block has its own keys, and only the buckets list the blocks. A key of another type than
-- hash is not a bucket and lists none.
local place, left = nil, 0
local names = { shard .. ':blocks_expiring' }
for bucket = 0, MAX_BUCKETS - 1 do names[bucket + 2] = shard .. ':blocks:' .. bucket end
for _, name in ipairs(names) do
  local size = call('TYPE', name).ok == 'hash' and call('HLEN', name) or 0
  if size > 0 then place, left = place or name, left + size end
end
local cursor = find(conf[3] or '', '^%d+$') and #conf[3] < 20 and conf[3] or '0'
local gone, ended, stopped = {}, {}, false
if place and count > 0 then
  -- Continue from the cursor of the last call: a scan from 0 would pass all the entries that
  -- earlier calls have deleted. A bucket is finished when it is empty, regardless of the cursor.
  local page = call('HSCAN', place, cursor, 'COUNT', count)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    if #gone >= count then
      stopped = true
      break
    end
    local id = page[2][i]
    gone[#gone + 1] = id
    if #id == 8 then
      local hex = string.format('%05x%08x', struct.unpack('>I4I4', id))
      for _, what in ipairs({ ':block:', ':failed:', ':present:', ':scratch:' }) do
        ended[#ended + 1] = shard .. what .. hex
      end
    end
  end
end
if count > 0 and left == #gone then
  for _, what in ipairs({ ':expiring', ':blocks_expiring', ':scratch', ':fence:durable',
    ':history', ':reports' }) do
    ended[#ended + 1] = shard .. what
  end
  for bucket = 0, MAX_BUCKETS - 1 do
    for _, what in ipairs({ ':pending:', ':fence:', ':blocks:' }) do
      ended[#ended + 1] = shard .. what .. bucket
    end
  end
  for _, field in ipairs(closed == 'hash' and call('HKEYS', dropping) or {}) do
    local task = string.match(field, '^backlog:(.+)$')
    if task then ended[#ended + 1] = shard .. ':outcomes:' .. task end
  end
  if ARGV[2] == '1' then ended[#ended + 1] = dropping end
  left = -1
end

-- maxmemory does not refuse this first write, and the later ones are not checked. Blocks are
-- removed before the entries that list them: if a write raised an error (the user lacks a right,
-- for example), the next call still finds the blocks.
call('UNLINK', shard)
if config == meta then
  -- With both keys, one of them is what a failover or another program has left. Together they name
  -- all streams.
  local streams = {}
  for _, field in ipairs(closed == 'hash' and call('HKEYS', dropping) or {}) do
    if find(field, '^backlog:') then streams[#streams + 1] = field end
  end
  call('UNLINK', dropping)
  if open == 'hash' then call('RENAME', meta, dropping) else call('UNLINK', meta) end
  for _, field in ipairs(streams) do call('HSET', dropping, field, 0) end
end
-- The key exists until the last call, which tells that the drop is not complete.
if conf[1] ~= '2' and left >= 0 then
  if closed ~= 'hash' and config == dropping then call('UNLINK', dropping) end
  call('HSET', dropping, 'schema', 2)
end
for from = 1, #ended, MAX_ARGS do
  call('UNLINK', unpack(ended, from, math.min(from + MAX_ARGS - 1, #ended)))
end
if left < 0 then return { 0, shards } end
for from = 1, #gone, MAX_ARGS do
  call('HDEL', place, unpack(gone, from, math.min(from + MAX_ARGS - 1, #gone)))
end
-- A page that was not processed whole is read again. The cursor moves past an empty page too.
if place and count > 0 and not stopped then call('HSET', dropping, 'drop_cursor', cursor) end
return { left - #gone + 1, shards }
