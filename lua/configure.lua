--[[
configure: change the settings of one shard of a live namespace, or do one step of a reshard.
Idempotent: a repeated call changes nothing.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1+] changes   field, value, field, value, ..; either one or more of
         tick_ms, high_water, outcomes_limit, deadline_ms, slo_target, slo_ms
                   as in the table "Configuration" of the contract; refused during a reshard
         or up to MAX_RAISED of
         lane:<name>
                   '<seq>:<ms>' of a durable lane: raise its fence to seq, if it is lower, with a
                   digest of 32 zeros and a last use of ms or later; a fence is never lowered
         or one step of a reshard, in powers of two up to the maximum of shards:
         reshard   '<from>:<to>' closes the shard: no tree is tracked until it is opened again;
                   '<from>:<to>:switch', if the shard is empty: on shard 0 this commits the
                   reshard; '<from>:<to>:cancel' cancels it; '' opens the shard, shard 0 only
                   when the reshard is complete or cancelled
         shards    <to>: sets the number of shards, if the shard is closed for this reshard and
                   empty; on shard 0 only after the commit. On shard 0 counters may follow:
         add:<counter>
                   what the removed shards have counted, up to 18 digits; it is added if this call
                   changes the number of shards. <counter>: a counter of the contract, slow,
                   after_failure, latency_ms, latency:<k>, odd:<k>, or of a source that shard 0
                   knows ended:<task>, good:<task>
         empty: no tree is pending; on a shard that the reshard removes, no verdict waits either

Reply    number of fields that this call has changed, or 0; a setting that the shard lacks has its
         default
Errors   ACKER ARGS | NAMESPACE | SCHEMA | RESHARD <words>; nothing was changed
--]]
-- part: begin
-- From lua/spec.json, by python -m proof.spec
local MAX_RAISED, MAX_PRODUCER = 500, 128
local MAX = { tick_ms = 1e12, high_water = 1e12, outcomes_limit = 1e12, deadline_ms = 1e12,
  slo_ms = 1e12, shards = 1024 }
-- Settings that a shard lacks until they are changed, and their values until then:
local DEFAULT = { slo_target = '99', slo_ms = '0' }

local COUNTERS = { tracked = true, acked = true, failed = true, expired = true, overflow = true,
  conflict = true, repeated = true, orphaned = true, after_failure = true, slow = true,
  latency_ms = true, ['odd:none'] = true }
local match = string.match

local function is_counter(name)
  return COUNTERS[name] or match(name, '^latency:%d%d?$') or match(name, '^odd:%d$')
    or match(name, '^ended:.') or match(name, '^good:.')
end

-- Return the text as a whole number from 1 to most, or nil.
local function whole(text, most)
  local value = match(text, '^[1-9][0-9]*$') and tonumber(text)
  return value and value <= most and value or nil
end

-- Return whether the text is a percentage from 50 to 99.999, in the shortest form.
local function is_target(text)
  return match(text, '^[5-9]%d$') or match(text, '^[5-9]%d%.%d?%d?[1-9]$')
end

local function power_of_two(text)
  local value = whole(text, MAX.shards)
  return value and math.log(value) / math.log(2) % 1 == 0
end

if #KEYS ~= 2 or #ARGV < 2 or #ARGV % 2 ~= 0 or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys (shard, shard:meta), and a field and a value for each '
    .. 'change')
end
local given, lanes, named = {}, {}, {}
local fields, sums = #ARGV, {}
if ARGV[1] == 'shards' then
  for i = 3, #ARGV, 2 do
    local name, value = match(ARGV[i], '^add:(.+)$'), ARGV[i + 1]
    if not name or not is_counter(name) or sums[name] or #value > 18
      or not match(value, '^%d+$') then
      return refuse('ARGS', 'only counters may follow shards, each once, as add:<counter> with a '
        .. 'number of up to 18 digits')
    end
    sums[name] = value
  end
  fields = 2
end
for i = 1, fields, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  local lane = match(field, '^lane:(@.*)$')
  if lane then
    local seq, ms = match(value, '^([1-9][0-9]*):([0-9]+)$')
    if not seq or #seq > 15 or #ms > 15 or #lane > MAX_PRODUCER or named[lane] then
      return refuse('ARGS', 'a lane must be given once, with a name of up to ' .. MAX_PRODUCER
        .. ' bytes and the value <seq>:<ms>, up to 15 digits each')
    end
    named[lane] = true
    lanes[#lanes + 1] = { name = lane, seq = seq, ms = ms }
  elseif not MAX[field] and field ~= 'slo_target' and field ~= 'reshard' then
    return refuse('ARGS', 'unknown field; use tick_ms, high_water, outcomes_limit, deadline_ms, '
      .. 'slo_target, slo_ms, reshard, shards or lane:@<name>')
  elseif given[field] then
    return refuse('ARGS', field .. ' is given twice; give each field once')
  elseif (field == 'reshard' or field == 'shards') and fields > 2 then
    return refuse('ARGS', field .. ' must be the only change in its call')
  elseif field == 'shards' and not power_of_two(value) then
    return refuse('ARGS', 'shards must be a power of two from 1 to ' .. MAX.shards)
  elseif field == 'slo_target' and not is_target(value) then
    return refuse('ARGS', 'slo_target must be a percentage from 50 to 99.999, with at most 3 '
      .. 'decimals, and no 0 at their end')
  elseif MAX[field] and not whole(value, MAX[field]) and (field ~= 'slo_ms' or value ~= '0') then
    return refuse('ARGS', string.format('%s must be a whole number from %d to %.0f', field,
      field == 'slo_ms' and 0 or 1, MAX[field]))
  end
  if not lane then given[field] = value end
end
if #lanes > MAX_RAISED or (#lanes > 0 and next(given)) then
  return refuse('ARGS', 'lanes must be the only changes in their call, ' .. MAX_RAISED
    .. ' at most')
end

-- part: fields
local have, flat = {}, call('HGETALL', meta)
for i = 1, #flat, 2 do have[flat[i]] = flat[i + 1] end
local conf = { have.schema }
-- part: schema
local conf_buckets, conf_current = have.buckets, have.current
-- part: ring

local MOVE = '^([1-9][0-9]*):([1-9][0-9]*)(:?%l*)$'
local from, to, phase = match(have.reshard or '', MOVE)
local first = have.shard == '0'
if next(sums) and not first then
  return refuse('ARGS', 'counters may follow shards on shard 0 only')
end

if #lanes > 0 then
  local durable, changed = shard .. ':fence:durable', {}
  for _, lane in ipairs(lanes) do
    local seq, ms = match(call('HGET', durable, lane.name) or '0::0', '^(%d+):%x*:(%d+)$')
    if not seq then return refuse('SCHEMA', durable .. ' has been tampered with') end
    -- A double holds 15 digits exactly.
    if tonumber(seq) < tonumber(lane.seq) then
      if tonumber(ms) < tonumber(lane.ms) then ms = lane.ms end
      changed[#changed + 1] = lane.name
      -- No batch has this digest: a batch without a digest must be a CONFLICT here, not a repeat.
      changed[#changed + 1] = lane.seq .. ':' .. string.rep('0', 32) .. ':' .. ms
    end
  end
  call('UNLINK', shard) -- a first write that maxmemory does not refuse
  if #changed > 0 then call('HSET', durable, unpack(changed)) end
  return #changed / 2
end

-- Say why the shard is not empty, or return nil if it is.
local function left()
  local places = { 'expiring', 'blocks_expiring' }
  for bucket = 0, buckets - 1 do
    places[#places + 1] = 'pending:' .. bucket
    places[#places + 1] = 'blocks:' .. bucket
  end
  for _, place in ipairs(places) do
    if call('HLEN', shard .. ':' .. place) > 0 then return 'trees are pending in ' .. place end
  end
  -- Sources read verdicts from all shards, so verdicts on a shard that stays may wait there.
  if tonumber(have.shard) < tonumber(to) then return nil end
  for field, value in pairs(have) do
    local task = match(field, '^backlog:(.*)$')
    if task then
      local stream = shard .. ':outcomes:' .. task
      local kind = call('TYPE', stream).ok
      if value ~= '0' or (kind ~= 'none' and (kind ~= 'stream' or call('XLEN', stream) > 0)) then
        return 'verdicts of ' .. task .. ' wait to be taken'
      end
    end
  end
  return nil
end

if given.shards then
  if given.shards ~= to or (first and phase ~= ':switch') then
    return refuse('RESHARD', shard .. ' is not resharding to ' .. given.shards
      .. ' shards, or the switch is not decided yet')
  end
  local what = left()
  if what then return refuse('RESHARD', shard .. ' is not empty: ' .. what) end
  if have.shards == given.shards then return 0 end
  -- In one write: a reader never sees the counts of the removed shards twice, nor never.
  local values = { 'shards', given.shards }
  for name, value in pairs(sums) do
    local task = match(name, '^ended:(.*)$') or match(name, '^good:(.*)$')
    if not task or have['backlog:' .. task] then
      local sum = (tonumber(have[name]) or 0) + value
      values[#values + 1], values[#values + 2] = name, string.format('%.0f', sum)
    end
  end
  call('UNLINK', shard) -- a first write that maxmemory does not refuse
  call('HSET', meta, unpack(values))
  return 1
end

if given.reshard == '' then
  if not have.reshard then return 0 end
  if first and phase ~= ':cancel' and have.shards ~= to then
    return refuse('RESHARD', shard .. ' is resharding to ' .. tostring(to) .. ' shards; complete '
      .. 'or cancel the reshard')
  end
  -- The shard may have further anchors now, of whose trees it knows nothing: see alive.
  call('HDEL', meta, 'reshard', 'whole')
  return 1
end

if given.reshard then
  local new_from, new_to, new_phase = match(given.reshard, MOVE)
  if not new_from or not power_of_two(new_from) or not power_of_two(new_to) or new_from == new_to
    or (new_phase ~= '' and new_phase ~= ':switch' and new_phase ~= ':cancel') then
    return refuse('ARGS', "reshard must be '', or <from>:<to>, two different powers of two, with "
      .. ':switch, :cancel or nothing after them')
  end
  local same = new_from == from and new_to == to
  -- Shard 0 decides. Another shard that is at :switch is closed already.
  if have.reshard == given.reshard or (same and not first and new_phase == '') then return 0 end
  if have.reshard and not same then
    return refuse('RESHARD', shard .. ' is resharding from ' .. tostring(from) .. ' to '
      .. tostring(to) .. ' shards; complete or cancel that first')
  elseif have.reshard and (phase ~= '' or new_phase == '') then
    return refuse('RESHARD', shard .. ' is at ' .. have.reshard .. ', which cannot become '
      .. given.reshard)
  elseif not have.reshard and new_phase ~= '' then
    return refuse('RESHARD', shard .. ' is not resharding; was the reshard cancelled?')
  elseif have.shards ~= new_from and (first or have.shards ~= new_to) then
    return refuse('RESHARD', shard .. ' is one of ' .. have.shards .. ' shards, not of '
      .. new_from)
  end
  local what = new_phase == ':switch' and left()
  if what then return refuse('RESHARD', shard .. ' is not empty: ' .. what) end
  call('UNLINK', shard)
  call('HSET', meta, 'reshard', given.reshard)
  return 1
end

if have.reshard then
  return refuse('RESHARD', shard .. ' is resharding to ' .. tostring(to) .. ' shards; change its '
    .. 'settings after the reshard, or cancel that')
end
local deadline_ms = tonumber(given.deadline_ms or have.deadline_ms)
if have.refresh == 'never' and deadline_ms ~= 0 then
  return refuse('ARGS', 'deadline_ms must be 0 with refresh never')
elseif have.refresh == 'update'
  and deadline_ms < buckets * (given.tick_ms or have.tick_ms) then
  return refuse('ARGS', 'deadline_ms must be at least buckets * tick_ms with refresh update')
end
local values, changed = {}, 0
for field, value in pairs(given) do
  if (have[field] or DEFAULT[field]) ~= value then changed = changed + 1 end
  values[#values + 1], values[#values + 2] = field, value
end
call('UNLINK', shard)
call('HSET', meta, unpack(values))
return changed
