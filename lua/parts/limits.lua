-- The configuration that limits a batch. Needs conf: schema, shard, shards, buckets, current,
-- high_water, refresh, outcomes_limit, .. Gives shard_number, shards, buckets, current, refresh,
-- this shard's share of high_water, and backlog_limit, its share of the verdicts that may wait.
local shard_number, shards, buckets, current = tonumber(conf[2]), tonumber(conf[3]),
  tonumber(conf[4]), tonumber(conf[5])
local high_water = math.max(1, math.ceil(conf[6] / shards))
local refresh = conf[7] == 'update'
local backlog_limit = math.max(1, math.ceil(conf[8] / shards))
