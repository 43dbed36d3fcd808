--[[
drop: end a shard in bounded calls. The first closes it: meta becomes <shard>:dropping, and all
other scripts say NAMESPACE from then on. What was stopped is run again, from its beginning.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  blocks    0 = close the shard; 1..1000 = remove so many at most, and 500 in any case, and
                   when none is left, all else
ARGV[2]  last      1 = and then <shard>:dropping too, which holds the configuration; 0 = keep it
ARGV[3]  move      may be missing; '<from>:<to>' = only a shard that goes in this move and has been
                   told so: its reshard is <from>:<to>:switch, and its shards <to>

Reply    {left, shards}
         left: blocks to remove, and 1 for all else; 0 when a call that removes has removed all
         shards: as the configuration says; of a namespace that moves (configure.lua) the
         greater number, as there may be shards of both
         {0, 0}: there is no such shard, or it is gone
Errors   ACKER ARGS | SCHEMA | EXISTS | RESHARD <words>; nothing was changed
--]]
-- part: begin
local MAX_BLOCKS, MAX_BUCKETS, MAX_SHARDS, MAX_ARGS = 500, 16, 1024, 1000
local find = string.find

if #KEYS ~= 2 or #ARGV < 2 or #ARGV > 3 or meta ~= shard .. ':meta'
  or not find(shard, '^acker:{[A-Za-z0-9_.-]+:[0-9]+}$') then
  return refuse('ARGS', 'two keys, acker:{<namespace>:<shard>} and the same with :meta, and two '
    .. 'or three arguments are needed')
end
local count = (ARGV[1] == '0' or find(ARGV[1], '^[1-9][0-9]*$')) and tonumber(ARGV[1])
if not count or count > 1000 then return refuse('ARGS', 'blocks is 0 to 1000') end
count = math.min(count, MAX_BLOCKS)
if ARGV[2] ~= '0' and ARGV[2] ~= '1' then return refuse('ARGS', 'last is 0 or 1') end
local target = string.match(ARGV[3] or '', '^[1-9][0-9]*:([1-9][0-9]*)$')
if ARGV[3] and not target then return refuse('ARGS', 'move is <from>:<to>') end

local dropping = shard .. ':dropping'
local open, closed = call('TYPE', meta).ok, call('TYPE', dropping).ok
if open == 'none' and closed == 'none' then return { 0, 0 } end
if open ~= 'none' and closed ~= 'none' then
  return refuse('SCHEMA', meta .. ' and ' .. dropping .. ' are both there, and one is to be '
    .. 'removed by hand')
end
local config = open == 'none' and dropping or meta
if open ~= 'hash' and closed ~= 'hash' then
  return refuse('SCHEMA', config .. ' has been tampered with')
end
local conf = call('HMGET', config, 'schema', 'shards', 'drop_cursor', 'reshard')
if conf[1] ~= '1' then
  return refuse('SCHEMA', 'this script knows schema 1, the namespace has another')
end
local shards = find(conf[2] or '', '^[1-9][0-9]*$') and tonumber(conf[2])
for number in string.gmatch(shards and conf[4] or '', '%d+') do
  shards = math.max(shards, tonumber(number))
end
if not shards or shards > MAX_SHARDS then
  return refuse('SCHEMA', config .. ' has been tampered with')
end
if open ~= 'none' and target and (conf[4] ~= ARGV[3] .. ':switch' or conf[2] ~= target) then
  -- Whoever comes late with the end of a move must not end what a later move has made.
  return refuse('RESHARD', shard .. ' does not go in the move ' .. ARGV[3] .. ', or not yet')
end
if open ~= 'none' and count > 0 then
  -- Whoever comes late with the rest of a drop must not end what was created since.
  return refuse('EXISTS', shard .. ' was created anew meanwhile; to drop that as well, run '
    .. 'drop again')
end

-- Blocks have keys of their own, which nothing but the buckets names. What is no bucket has none.
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
  -- The cursor goes on where the last call stopped: from 0 each time, a scan must walk over all
  -- that was emptied before. Whatever it says, a bucket is through when it is empty.
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
      for _, what in ipairs({ ':block:', ':failed:', ':scratch:' }) do
        ended[#ended + 1] = shard .. what .. hex
      end
    end
  end
end
if count > 0 and left == #gone then
  for _, what in ipairs({ ':expiring', ':blocks_expiring', ':scratch', ':fence:durable' }) do
    ended[#ended + 1] = shard .. what
  end
  for bucket = 0, MAX_BUCKETS - 1 do
    for _, what in ipairs({ ':pending:', ':fence:', ':blocks:' }) do
      ended[#ended + 1] = shard .. what .. bucket
    end
  end
  for _, field in ipairs(call('HKEYS', config)) do
    local task = string.match(field, '^backlog:(.+)$')
    if task then ended[#ended + 1] = shard .. ':outcomes:' .. task end
  end
  if ARGV[2] == '1' then ended[#ended + 1] = dropping end
  left = -1
end

-- The first write is one that maxmemory does not refuse, and all others pass with it. What names
-- the blocks goes after them: if a write raised, say for want of a right, the next call finds them.
call('UNLINK', shard)
if config == meta then call('RENAME', meta, dropping) end
for from = 1, #ended, MAX_ARGS do
  call('UNLINK', unpack(ended, from, math.min(from + MAX_ARGS - 1, #ended)))
end
if left < 0 then return { 0, shards } end
for from = 1, #gone, MAX_ARGS do
  call('HDEL', place, unpack(gone, from, math.min(from + MAX_ARGS - 1, #gone)))
end
-- A page that was not taken whole is read again; one that holds nothing is none the less passed.
if place and count > 0 and not stopped then call('HSET', dropping, 'drop_cursor', cursor) end
return { left - #gone + 1, shards }
