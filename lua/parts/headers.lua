-- Look up the blocks of a batch, newest bucket first, and count the pending trees. Needs ids,
-- items, buckets, current, conf. Gives each item's bucket and header; pending, of the whole shard;
-- and sizes, the number of blocks of each bucket.
local pending = tonumber(conf[10] or 0)
local ask, asked, sizes = ids, items, {}
for age = 0, buckets - 1 do
  local bucket = (current - age) % buckets
  pending = pending + call('HLEN', shard .. ':pending:' .. bucket)
  sizes[bucket] = call('HLEN', shard .. ':blocks:' .. bucket)
  if #ask > 0 and sizes[bucket] > 0 then
    local ids_left, items_left = {}, {}
    for k, header in ipairs(call('HMGET', shard .. ':blocks:' .. bucket, unpack(ask))) do
      local item = asked[k]
      if header then
        item.bucket, item.header = bucket, header
      else
        ids_left[#ids_left + 1], items_left[#items_left + 1] = ids[item.number], item
      end
    end
    ask, asked = ids_left, items_left
  end
end
