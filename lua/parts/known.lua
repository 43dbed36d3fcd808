-- Read what the shard knows of the blocks of a batch and of their sources. Refuse the batch if a
-- key has been tampered with, if a block came back with other content, or if it may not be tracked
-- now. Writes nothing: all reads come before the first write, because a read can raise an error.
-- Needs items with their headers, conf, reshard, refresh, backlog_limit, moved_to, is_bitmap. Gives
-- the fields of items in the step known (apply_blocks.lua); waiting: of each source the number of
-- verdicts that wait, and its fields in meta; and key_of, failed_of, present_of, keys of blocks.
-- From lua/spec.json, by python -m proof.spec
local MAX_TASKS = 1000

local key_of, failed_of, present_of = shard .. ':block:', shard .. ':failed:', shard .. ':present:'
local waiting, new_tasks = {}, 0
-- Blocks that this call tracks, with their numbers and keys of bitmaps; and all keys of failures.
local new_items, new_ids, present_keys, failed_keys = {}, {}, {}, {}
local failures_before = false

local function source_of(task)
  if not waiting[task] then
    local kind = call('TYPE', shard .. ':outcomes:' .. task).ok
    local backlog, used, ended, good = unpack(call('HMGET', meta, 'backlog:' .. task,
      'used:' .. task, 'ended:' .. task, 'good:' .. task))
    waiting[task] = { number = tonumber(backlog or 0), new = not backlog, used = used,
      valid = kind == 'stream' or kind == 'none', ended = tonumber(ended) or 0,
      good = tonumber(good) or 0 }
  end
  return waiting[task]
end

-- Read a block that is pending. Return an error if it is damaged, or another block.
local function read_pending(item)
  local first, last, state, slots, digest, task, at = unpack_bytes('>I6I4BI2c8Bc0', item.header)
  local label, partial, present = sub(item.header, at), band(state, 2) > 0, ''
  item.key = key_of .. item.name
  if partial then present = call('GET', present_of .. item.name) end
  if call('STRLEN', item.key) ~= 8 * slots or (partial and not is_bitmap(present, slots, '')) then
    return refuse('SCHEMA', item.key .. ' has been tampered with')
  elseif item.track and (slots ~= item.slots or task ~= item.task or label ~= item.label
    or digest ~= sub(redis.sha1hex(item.deltas .. item.present), 1, 8)) then
    return refuse('CONFLICT', 'block ' .. item.name .. ' came back with other content')
  end
  item.first, item.last, item.slots, item.task, item.label = first, last, slots, task, label
  item.present, item.trees = present, slots
  if partial then item.trees = call('BITCOUNT', present_of .. item.name) end
  item.has_failed = band(state, 4) > 0
  failures_before = failures_before or item.has_failed
  item.to, item.capped = item.bucket, band(state, 1) > 0
  if item.touch or refresh then item.to, item.capped = moved_to(item.bucket, first) end
end

for _, item in ipairs(items) do
  if item.header then
    local refused = read_pending(item)
    if refused then return refused end
  elseif item.track then
    item.is_new, item.key, item.first = true, key_of .. item.name, now
    item.to, item.capped = current, false
    new_items[#new_items + 1], new_ids[#new_ids + 1] = item, item.id
    present_keys[#present_keys + 1] = present_of .. item.name
  end
  if item.key then
    local source = source_of(item.task)
    if not source.number or not source.valid then
      return refuse('SCHEMA', shard .. ':outcomes:' .. item.task
        .. ' or its backlog has been tampered with')
    elseif item.is_new and reshard then
      return refuse('BACKLOG', 'the namespace is resharding to '
        .. tostring(string.match(reshard, ':(%d+)'))
        .. ' shards; no tree is tracked until that ends, try again later')
    elseif item.is_new and source.number >= backlog_limit then
      return refuse('BACKLOG', 'task ' .. item.task .. ' has ' .. source.number
        .. ' verdicts waiting to be taken; its source must read and take its outcomes')
    elseif item.is_new then
      if source.new and not source.tracks then new_tasks = new_tasks + 1 end
      source.tracks = true
    end
    failed_keys[#failed_keys + 1] = failed_of .. item.name
  end
end
if new_tasks > 0 and tonumber(conf[11] or 0) + new_tasks > MAX_TASKS then
  return refuse('ARGS', 'a shard has at most ' .. MAX_TASKS
    .. ' tasks; an idle task is forgotten after 100 ticks, once its verdicts are taken')
end
if #new_ids > 0 then
  for k, header in ipairs(call('HMGET', shard .. ':blocks_expiring', unpack(new_ids))) do
    new_items[k].expires = header
  end
end
-- Most blocks have no failures: one EXISTS says so of all that do not announce any. Likewise for
-- the bitmaps of new blocks, which only an earlier block of the same number can have left.
if failures_before or (#failed_keys > 0 and call('EXISTS', unpack(failed_keys)) > 0) then
  for _, item in ipairs(items) do
    local before = item.key and call('GET', failed_of .. item.name)
    if before and item.is_new then
      item.stale = true
    elseif (before or item.has_failed) and not is_bitmap(before, item.slots, item.present) then
      return refuse('SCHEMA', failed_of .. item.name .. ' has been tampered with')
    elseif before then
      item.before, item.failed_before = before, call('BITCOUNT', failed_of .. item.name)
    end
  end
end
if #present_keys > 0 and call('EXISTS', unpack(present_keys)) > 0 then
  for _, item in ipairs(new_items) do item.stale = true end
end
