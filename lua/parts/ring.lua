-- The ring of buckets, over which scripts loop. Any producer can write meta, and a loop over a
-- billion buckets would stop Redis for all. Needs conf_buckets, conf_current. Gives buckets,
-- current.
-- From lua/spec.json, by python -m proof.spec
local MIN_BUCKETS, MAX_BUCKETS = 2, 16

local buckets, current = tonumber(conf_buckets), tonumber(conf_current)
if not buckets or buckets < MIN_BUCKETS or buckets > MAX_BUCKETS or buckets % 1 ~= 0
  or not current or current < 0 or current >= buckets or current % 1 ~= 0 then
  return refuse('SCHEMA', meta .. ' has been tampered with: buckets or current')
end
