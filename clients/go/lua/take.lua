--[[
take: delete outcomes that their source has handled. Idempotent: missing entries are skipped.

KEYS[1]  shard     acker:{<namespace>:<shard>}, the prefix of all keys, never a key itself
KEYS[2]  meta      <shard>:meta
ARGV[1]  task      the source, [A-Za-z0-9_.-]{1,64}
ARGV[2+] ids       1 to MAX_TAKE ids of stream entries, <ms>-<n>

Reply    {entries deleted, verdicts in them, verdicts that still wait, ids processed}
         with large entries the call stops early; send the ids after the processed ones again
Errors   ACKER ARGS | NAMESPACE | SCHEMA <words>; nothing was changed
--]]
-- parts/begin.lua
-- Names that every script uses. Gives shard, meta, call, refuse.
local shard, meta = KEYS[1], KEYS[2]
local call = redis.call

local function refuse(code, words)
  return redis.error_reply('ACKER ' .. code .. ' ' .. words)
end
local task = ARGV[1]
-- From lua/spec.json, by python -m proof.spec
local MAX_TAKE, MAX_TAKE_BYTES, MAX_NAME = 64, 512 * 1024, 64

if #KEYS ~= 2 or meta ~= shard .. ':meta' then
  return refuse('ARGS', 'needs two keys (shard, shard:meta)')
elseif #ARGV < 2 or #ARGV > 1 + MAX_TAKE then
  return refuse('ARGS', 'needs a task and 1 to ' .. MAX_TAKE .. ' ids')
elseif #task > MAX_NAME or not string.find(task, '^[A-Za-z0-9_.-]+$') then
  return refuse('ARGS', 'a task must be 1 to ' .. MAX_NAME .. ' characters of A-Z a-z 0-9 _ . -')
end
for i = 2, #ARGV do
  local ms, n = string.match(ARGV[i], '^(%d+)%-(%d+)$')
  if not ms or #ms > 15 or #n > 15 then
    return refuse('ARGS', 'id ' .. i - 2 .. ' is not <ms>-<n>')
  end
end
local conf = { call('HGET', meta, 'schema') }
-- parts/schema.lua
-- Check that the namespace exists, with a schema that this script supports. Needs conf, whose first
-- field is the schema.
if not conf[1] then
  return refuse('NAMESPACE', 'not created: ' .. shard)
elseif conf[1] ~= '2' then
  return refuse('SCHEMA', 'this script supports schema 2 only, the namespace has another')
end
local stream, backlog = shard .. ':outcomes:' .. task, 'backlog:' .. task
local found, seen, verdicts, bytes, looked = {}, {}, 0, 0, 0
for i = 2, #ARGV do
  if bytes >= MAX_TAKE_BYTES then break end
  looked = looked + 1
  local entry = call('XRANGE', stream, ARGV[i], ARGV[i])[1]
  -- Compare the ids that Redis returns: 01-0 and 1-0 are the same entry.
  if entry and not seen[entry[1]] then
    seen[entry[1]] = true
    found[#found + 1] = entry[1]
    for f = 1, #entry[2], 2 do
      bytes = bytes + #entry[2][f + 1]
      if entry[2][f] == 'n' then
        local n = tonumber(entry[2][f + 1])
        if not n then return refuse('SCHEMA', entry[1] .. ' has been tampered with') end
        verdicts = verdicts + n
      end
    end
  end
end
local known = call('HGET', meta, backlog)
local waiting = tonumber(known or 0)
if not waiting then return refuse('SCHEMA', backlog .. ' has been tampered with') end
call('UNLINK', shard) -- a first write that maxmemory does not refuse
if #found > 0 then
  call('XDEL', stream, unpack(found))
  waiting = math.max(0, waiting - verdicts)
end
-- An empty stream has no verdict that waits, regardless of the count.
if call('XLEN', stream) == 0 then waiting = 0 end
if known then call('HSET', meta, backlog, waiting) end
return { #found, verdicts, waiting, looked }
