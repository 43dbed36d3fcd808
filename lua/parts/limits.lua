-- The configuration that limits a batch. Needs conf: schema, shard, shards, buckets, current,
-- high_water, refresh, outcomes_limit, .. Gives shard_number, shards, refresh, high_water and
-- backlog_limit, this shard's shares of the mark and of the verdicts that may wait, and what ring
-- needs.
local shard_number, shards = tonumber(conf[2]), tonumber(conf[3])
local conf_buckets, conf_current = conf[4], conf[5]
local high_water = math.max(1, math.ceil(conf[6] / shards))
local refresh = conf[7] == 'update'
local backlog_limit = math.max(1, math.ceil(conf[8] / shards))
