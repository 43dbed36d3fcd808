-- Where rows move a record or a block. Needs conf_deadline, conf_tick, conf_ticked, buckets,
-- current, now. Gives moved_to(bucket, first): the bucket to move to from this one, and whether
-- the deadline keeps the record out of the newest bucket; and since(first): the ms from first to
-- now, as 4 bytes can hold them.
local moved_to
do
  local deadline_ms = tonumber(conf_deadline or 0)

  function moved_to(from_bucket, first)
    if deadline_ms == 0 then return current, false end
    local tick_ms = tonumber(conf_tick)
    -- The next tick that is on time. The clock may have gone back since the last tick.
    local next_ms = math.min(math.max(conf_ticked + tick_ms, now), now + tick_ms)
    -- The bucket of age a expires with tick buckets - a from now, and the first tick that is not
    -- before the deadline must be that one or a later one.
    local ticks = math.max(1, 1 + math.ceil((first + deadline_ms - next_ms) / tick_ms))
    local age = math.max(0, buckets - ticks)
    -- Never into an older bucket: after a change of tick_ms the present one may end later.
    if age >= (current - from_bucket) % buckets then return from_bucket, age > 0 end
    return (current - age) % buckets, age > 0
  end
end

local MAX_SINCE = 2 ^ 32 - 1

local function since(first)
  local ms = now - first
  if ms < 0 then return 0 end
  return ms < MAX_SINCE and ms or MAX_SINCE
end
