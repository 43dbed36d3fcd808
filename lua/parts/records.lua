-- Look up the records of a batch, newest bucket first, and count the pending trees. Needs n, ids,
-- row_of, buckets, current, conf. Gives record[r] and home[r], its bucket; pending, of the whole
-- shard; and for each bucket pending_keys and sizes.

-- By its defaults, Redis may store a hash of up to this many fields as a listpack.
local SMALL = 512
-- Trees in blocks (apply_blocks.lua) are pending as well.
local pending_keys, sizes, pending = {}, {}, tonumber(conf[12] or 0)
local record, home, found = {}, {}, 0
for age = 0, buckets - 1 do
  local bucket = (current - age) % buckets
  local key = shard .. ':pending:' .. bucket
  local size = call('HLEN', key)
  pending_keys[bucket], sizes[bucket], pending = key, size, pending + size
  if size > 0 and size <= SMALL and size <= 8 * (n - found) then
    -- In a listpack each lookup is linear: read the whole hash, unless a few lookups cost less.
    local all = call('HGETALL', key)
    for i = 1, 2 * size, 2 do
      local r = row_of[all[i]]
      if r and not record[r] then record[r], home[r], found = all[i + 1], bucket, found + 1 end
    end
  elseif size > 0 and found < n then
    local ask, rows = ids, nil
    if found > 0 then
      ask, rows = {}, {}
      for r = 1, n do
        if not record[r] then ask[#ask + 1], rows[#rows + 1] = ids[r], r end
      end
    end
    local got = call('HMGET', key, unpack(ask))
    for k = 1, #got do
      if got[k] then
        local r = rows and rows[k] or k
        record[r], home[r], found = got[k], bucket, found + 1
      end
    end
  end
end
