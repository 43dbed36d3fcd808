-- At a tick: note for which time the memory of the shard is whole. After a restart, a failover or a
-- restored snapshot the server has another run id or replication id, and may have lost trees that
-- were tracked before. INFO is in the script, and not before it: so no failover comes in between.
-- Until the next tick the second time stays, so no later tree counts as known. Needs conf_whole,
-- now, buckets, tick_ms. Gives whole, '<since ms>:<until ms>:<run>', or nil: the user may not ask
-- for INFO, or the server has none.
-- From lua/spec.json, by python -m proof.spec
local MAX_SKEW_MS = 600000

local whole
do
  local function id_of(section, name)
    local info = redis.pcall('INFO', section)
    return type(info) == 'string' and string.match(info, name .. ':(%x+)') or ''
  end

  local id = id_of('server', 'run_id')
  if id ~= '' then
    local run = string.sub(redis.sha1hex(id .. id_of('replication', 'master_replid')), 1, 16)
    local since, last, former = string.match(conf_whole or '', '^(%d+):(%d+):(%x+)$')
    if former and former ~= run then
      -- The clock of the former server may have been ahead of this one.
      since = now + MAX_SKEW_MS
    elseif not former or now - last > buckets * tick_ms then
      -- Keys that were restored into a running server are as old as their backup. A rotator that
      -- was away cannot be told from that.
      since = now
    end
    whole = string.format('%.0f:%.0f:%s', since, now, run)
  end
end
