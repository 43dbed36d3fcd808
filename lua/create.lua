--[[
create: create one shard of a namespace. Idempotent: a repeated call changes nothing.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV     schema, shard, shards, buckets, tick_ms, high_water, refresh, deadline_ms, outcomes_limit,
         publish, edges; all as in the table "Configuration" of the contract
         salt: 32 lower-case hex digits; random for shard 0, and that of shard 0 for the others

Reply    {created, salt}; created: 1, or 0 if it exists with the same configuration; EXISTS if it
         exists with another configuration, or is being dropped; salt: of this shard, which is not
         the given one if shard 0 existed before
Errors   ACKER ARGS | SCHEMA | EXISTS <words>; nothing was changed
--]]
-- part: begin
local FIELDS = { 'schema', 'shard', 'shards', 'buckets', 'tick_ms', 'high_water', 'refresh',
  'deadline_ms', 'outcomes_limit', 'publish', 'edges', 'salt' }
-- From lua/spec.json, by python -m proof.spec
local RANGES = { shards = { 1, 1024 }, buckets = { 2, 16 }, tick_ms = { 1, 1e12 },
  high_water = { 1, 1e12 }, deadline_ms = { 0, 1e12 }, outcomes_limit = { 1, 1e12 } }
local MAX_EDGES, MAX_NAME = 8, 64
local COUNTERS = {
  'tracked', 'acked', 'failed', 'expired', 'overflow', 'conflict', 'repeated', 'orphaned' }

-- Return whether the text holds up to MAX_EDGES distinct names, separated by commas.
local function are_names(text)
  local seen, count = {}, 0
  for name in string.gmatch(text .. ',', '([^,]*),') do
    if name == '' or #name > MAX_NAME or seen[name] or string.find(name, '[^A-Za-z0-9_.-]') then
      return false
    end
    seen[name], count = true, count + 1
  end
  return count <= MAX_EDGES
end

local namespace, number = string.match(shard or '', '^acker:{([A-Za-z0-9_.-]+):([0-9]+)}$')
if #KEYS ~= 2 or #ARGV ~= #FIELDS or not namespace or #namespace > MAX_NAME
  or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys, acker:{<namespace>:<shard>} and the same with :meta, and '
    .. #FIELDS .. ' arguments')
elseif namespace == '.' or namespace == '..' then
  return refuse('ARGS', 'a namespace must not be . or .., which a URL cannot contain as a name')
end
local given = {}
for i, field in ipairs(FIELDS) do given[field] = ARGV[i] end
if given.schema ~= '2' then return refuse('SCHEMA', 'this script supports schema 2 only') end
for field, range in pairs(RANGES) do
  local text = given[field]
  local value = (text == '0' or string.find(text, '^[1-9][0-9]*$')) and tonumber(text)
  if not value or value < range[1] or value > range[2] then
    return refuse('ARGS', string.format('%s must be a whole number from %.0f to %.0f', field,
      range[1], range[2]))
  end
end
if given.shard ~= number or not string.find(number, '^[0-9]+$')
  or tonumber(number) >= tonumber(given.shards) then
  return refuse('ARGS', 'shard must be the number in the key, and less than shards')
elseif math.log(given.shards) / math.log(2) % 1 ~= 0 then
  return refuse('ARGS', 'shards must be a power of two')
elseif given.refresh ~= 'never' and given.refresh ~= 'update' then
  return refuse('ARGS', 'refresh must be never or update')
elseif given.publish ~= 'yes' and given.publish ~= 'no' then
  return refuse('ARGS', 'publish must be yes or no')
elseif given.refresh == 'never' and given.deadline_ms ~= '0' then
  return refuse('ARGS', 'deadline_ms must be 0 with refresh never')
elseif given.refresh == 'update'
  and tonumber(given.deadline_ms) < given.buckets * given.tick_ms then
  return refuse('ARGS', 'deadline_ms must be at least buckets * tick_ms with refresh update')
elseif given.edges ~= '' and not are_names(given.edges) then
  return refuse('ARGS', 'edges must be up to ' .. MAX_EDGES .. ' different names, separated by '
    .. 'commas, each 1 to ' .. MAX_NAME .. ' characters of A-Z a-z 0-9 _ . -')
elseif #given.salt ~= 32 or string.find(given.salt, '[^0-9a-f]') then
  return refuse('ARGS', 'salt must be 32 hex digits, 0-9 and a-f')
end

if call('EXISTS', shard .. ':dropping') == 1 then
  return refuse('EXISTS', shard .. ' is being dropped; run drop again until it has completed')
elseif call('EXISTS', meta) == 1 then
  local have = redis.pcall('HMGET', meta, unpack(FIELDS))
  if have.err or not have[1] then
    return refuse('SCHEMA', meta .. ' exists but has no schema: a failover or another program has '
      .. 'damaged this shard, and no program can use it; drop the namespace, then create it again')
  end
  local salt = have[#FIELDS]
  -- Each call for shard 0 brings its own random salt; the first one stays. No message shows it.
  if number ~= '0' and salt ~= given.salt then
    return refuse('EXISTS', shard .. ' was created with another salt; drop the namespace, or use '
      .. 'another name')
  end
  for i, field in ipairs(FIELDS) do
    if have[i] ~= ARGV[i] and field ~= 'salt' then
      local how = 'change it (acker-redis config set, or reshard)'
      if field == 'edges' or field == 'buckets' then
        how = 'it cannot be changed; drop the namespace'
      end
      return refuse('EXISTS', shard .. ' was created with ' .. field .. ' '
        .. tostring(have[i]) .. ', not ' .. ARGV[i] .. '; ' .. how .. ', or use another name')
    end
  end
  return { 0, salt }
end

-- part: clock
local values = { 'current', 0, 'ticked_ms', string.format('%.0f', now), 'cursor', '0', 'tasks', 0,
  'slots', 0 }
for _, counter in ipairs(COUNTERS) do
  values[#values + 1], values[#values + 2] = counter, 0
end
for i, field in ipairs(FIELDS) do
  values[#values + 1], values[#values + 2] = field, ARGV[i]
end
call('HSET', meta, unpack(values))
return { 1, given.salt }
