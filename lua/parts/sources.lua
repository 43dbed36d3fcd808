-- Look up the backlogs of the sources that get verdicts, by one command: a batch can end trees of a
-- thousand sources. Needs groups (of verdicts, each with task, verdict, n and late, the number of
-- acks that took longer than slo_ms), used (the sources that rotate must not forget), ticks,
-- backlog_limit, sub. Gives each group its key, and told, whether it is to be written; and changed,
-- the fields of meta to be written, with their values.
local waiting, asked, changed = {}, {}, {}
local ends, ended, good = {}, {}, {}
local function ask_for(name)
  if not waiting[name] then
    waiting[name], asked[#asked + 1], asked[#asked + 2] = 0, 'backlog:' .. name, 'used:' .. name
  end
end
for _, group in ipairs(groups) do
  local name = group.task
  ask_for(name)
  if group.verdict ~= 'touch' and not ended[name] then ended[name], ends[#ends + 1] = 0, name end
end
for owner in pairs(used) do ask_for(owner) end
local names = #asked
for k, name in ipairs(ends) do
  asked[names + 2 * k - 1], asked[names + 2 * k] = 'ended:' .. name, 'good:' .. name
end
local fields = #asked > 0 and call('HMGET', meta, unpack(asked)) or asked
for k = 1, names, 2 do
  local name = sub(asked[k], 9)
  waiting[name] = tonumber(fields[k] or 0)
  if used[name] and fields[k + 1] ~= ticks then
    changed[#changed + 1], changed[#changed + 2] = asked[k + 1], ticks
  end
end
for k, name in ipairs(ends) do
  -- Statistics: a value that is no number stops no verdict.
  local at = names + 2 * k
  ended[name], good[name] = tonumber(fields[at - 1]) or 0, tonumber(fields[at]) or 0
end
for _, group in ipairs(groups) do
  group.key = shard .. ':outcomes:' .. group.task
  local kind, backlog = call('TYPE', group.key).ok, waiting[group.task]
  if kind ~= 'stream' and kind ~= 'none' or not backlog then
    return refuse('SCHEMA', group.key .. ' or its backlog has been tampered with')
  end
  group.told = group.verdict ~= 'touch' or backlog < backlog_limit
  if group.told then
    waiting[group.task] = backlog + group.n
    changed[#changed + 1], changed[#changed + 2] = 'backlog:' .. group.task, backlog + group.n
  end
  if group.verdict ~= 'touch' then
    local name, at = group.task, #changed
    ended[name] = ended[name] + group.n
    changed[at + 1], changed[at + 2] = 'ended:' .. name, ended[name]
    if group.verdict == 'ack' then
      good[name] = good[name] + group.n - group.late
      changed[at + 3], changed[at + 4] = 'good:' .. name, good[name]
    end
  end
end
