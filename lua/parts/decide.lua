-- Decide row by row what to write; nothing is written yet. Needs the rows (n, flag, ids, anchor,
-- delta, deltas, task, tracks, the texts in ARGV), their records (record, home), pending,
-- high_water, refresh, reshard, buckets, current, now, moved_to, since, and used. Gives puts and
-- drops, of each bucket; groups of verdicts, and told, their numbers by reason; completed, for
-- latency; rejected; and the numbers tracked, created, orphaned, unfinished and slow. For the bytes
-- of a record see lua/README.md.
--
-- A row XORs its delta onto the record of its anchor, or onto a new one. TRACK gives a record
-- without a task the task, and FAIL a record without a why the why. Then the first line that
-- applies is the effect of the row:
--
--   record    then                                    effect
--   existed   TRACK, and the record had a task        nack, conflict; of both trees
--   any       it has a task and a why                 nack, failed
--   any       it has a task, and is zero              ack, completed
--   new       no task, no why, zero                   nothing: a TOUCH of an unknown anchor
--   new       a task; pending at twice high_water     nack, overflow: the row is rejected
--   new       no task; pending at high_water, or      dropped, and counted as orphaned
--             the namespace is resharding
--   new       otherwise                               put into the newest bucket
--   existed   otherwise                               stays; TOUCH, FAIL and refresh may move it
--
-- start() has the lines of new records, change() those of records that existed. A tree that gets an
-- ack or a nack has no record afterwards. An anchor comes once in a batch. So rows depend on each
-- other in one thing only: pending counts what the rows before have created and ended.

-- What will be written and deleted, per bucket. A list keeps its length in n, because Lua's #
-- operator searches for the end of a list.
local puts, drops = {}, {}
for bucket = 0, buckets - 1 do puts[bucket], drops[bucket] = { n = 0 }, { n = 0 } end
-- unfinished: trees that failed before they were zero. The rows of their other messages come late.
local tracked, created, orphaned, unfinished, rejected = 0, 0, 0, 0, {}
-- Verdicts, in groups of one reason and task, and their numbers; acks also by the time of the first
-- row.
local told = { completed = 0, failed = 0, overflow = 0, conflict = 0, reset = 0 }
local groups, group_of, ages, completed, slow = {}, {}, {}, {}, 0
-- An acked tree whose first row is older is not good; with slo_ms 0 each one is.
local slo_ms = tonumber(conf[18]) or 0
local oldest = slo_ms > 0 and now - slo_ms or 0
-- The texts are in row order: each row takes its own, also if it then has no use for it.
local next_source, next_why = 7, 7 + tracks
-- The bytes between checksum and source id in the record of a new tree.
local begun = pack('>BI6I4B', 0, now, 0, #task) .. task
-- Flags and times of a record that stays, by its flags and the time of its first row. Trees that
-- were tracked together share them.
local times = {}

-- Write a verdict, without its brackets. Texts are escaped already.
local function tell(verdict, reason, owner, r, first, source_id, why)
  local by_owner = group_of[reason]
  if not by_owner then
    by_owner = {}
    group_of[reason] = by_owner
  end
  local group = by_owner[owner]
  if not group then
    group = { verdict = verdict, reason = reason, task = owner, rows = {}, n = 0, late = 0 }
    by_owner[owner], groups[#groups + 1] = group, group
  end
  local age = ages[first]
  if not age then
    age = string.format('",%.0f,"', math.max(0, now - first))
    ages[first] = age
  end
  if why then age = age .. why end
  if first < oldest then group.late = group.late + 1 end
  if reason == 'completed' then completed[first] = (completed[first] or 0) + 1 end
  local count = group.n + 1
  group.n, group.rows[count] = count,
    hex(anchor[2 * r - 1]) .. hex(anchor[2 * r]) .. '","' .. source_id .. age
end

-- The bits of flag[r]: % 2 == 1 is TRACK, % 4 > 1 is FAIL, > 3 is TOUCH, > 1 is FAIL or TOUCH. A
-- comparison costs less than %, so it comes first.

-- Apply a row whose anchor has no record. Return the record, or nil.
local function start(r)
  local bits, zero = flag[r], delta[2 * r - 1] + delta[2 * r] == 0
  local head, text, why = begun
  if bits > 1 and bits % 4 > 1 then why, next_why = ARGV[next_why], next_why + 1 end
  if bits % 2 == 1 then
    text = ARGV[next_source]
    next_source, tracked = next_source + 1, tracked + 1
    if why then
      if not zero then unfinished = unfinished + 1 end
      return tell('nack', 'failed', task, r, now, text, why)
    elseif zero then
      return tell('ack', 'completed', task, r, now, text)
    elseif pending >= 2 * high_water then
      rejected[#rejected + 1] = pack('>I2', r - 1)
      return tell('nack', 'overflow', task, r, now, text)
    elseif bits > 3 then
      tell('touch', 'reset', task, r, now, text)
    end
  elseif zero and not why then
    return nil
  elseif reshard or pending >= high_water then
    orphaned = orphaned + 1
    return nil
  else
    head, text = pack('>BI6I4B', why and 1 or 0, now, 0, 0), why or ''
  end
  created, pending = created + 1, pending + 1
  return sub(deltas, 8 * r - 7, 8 * r) .. head .. text
end

-- Apply a row to the record of its anchor. high and low: the checksum before; marks: the flags and
-- the time of the first row, as one number; zero: whether the checksum becomes zero. Return the
-- record and its bucket, or nil if the tree has ended.
local function change(r, old, high, low, marks, zero)
  local bits, bucket, first = flag[r], home[r], marks % 2 ^ 48
  local state, owner, at = (marks - first) / 2 ^ 48, unpack_bytes('>Bc0', old, 20)
  local text, why, second_id = sub(old, at)
  -- Only a record without a task can have a why, in place of the source id.
  if state % 2 == 1 then why = text end
  if bits > 1 and bits % 4 > 1 then
    if not why or why == '' then why = ARGV[next_why] end
    next_why = next_why + 1
  end
  if bits % 2 == 1 then
    if owner ~= '' then
      second_id = ARGV[next_source]
    else
      owner, text, tracked = task, ARGV[next_source], tracked + 1
    end
    next_source = next_source + 1
  end

  if owner ~= '' and (second_id or why or zero) then
    pending = pending - 1
    if second_id then
      -- Both trees are nacked, or one of the sources would wait for ever.
      tell('nack', 'conflict', owner, r, first, text)
      if owner ~= task or text ~= second_id then
        tell('nack', 'conflict', task, r, now, second_id)
        tracked = tracked + 1
      end
    elseif why then
      if not zero then unfinished = unfinished + 1 end
      tell('nack', 'failed', owner, r, first, text, why)
    else
      tell('ack', 'completed', owner, r, first, text)
    end
    return nil
  end

  local to, capped = bucket, state > 1
  if bits > 1 or refresh then
    to, capped = moved_to(bucket, first)
    if owner ~= '' then used[owner] = true end
    -- If the deadline leaves the record where it is, no clock was restarted.
    if bits > 3 and owner ~= '' and not (capped and to == bucket) then
      tell('touch', 'reset', owner, r, first, text)
    end
  end
  state = (owner == '' and why and 1 or 0) + (capped and 2 or 0)
  return pack('>I4I4BI6I4B', xor(high, delta[2 * r - 1]), xor(low, delta[2 * r]), state, first,
    since(first), #owner) .. owner .. (owner == '' and why or text), to
end

for r = 1, n do
  local old, bucket = record[r], home[r]
  local value, to -- the record after this row, or nil, and its bucket
  if not old then
    value, to = start(r), current
  else
    local high, low, marks = unpack_bytes('>I4I4I7', old)
    local by_high, by_low = delta[2 * r - 1], delta[2 * r]
    local zero = high == by_high and low == by_low
    if zero or flag[r] > 0 or refresh then
      value, to = change(r, old, high, low, marks, zero)
    else
      -- Most rows have no flag and leave a checksum that is not zero. By the last line of the table
      -- the record stays, and all but its checksum and the time of its last row is copied. change()
      -- returns the same, in a fifth more of Redis's time.
      local stays = times[marks]
      if not stays then
        stays = sub(old, 9, 15) .. pack('>I4', since(marks % 2 ^ 48))
        times[marks] = stays
      end
      value = pack('>I4I4', xor(high, by_high), xor(low, by_low)) .. stays .. sub(old, 20)
      to = bucket
    end
  end
  if value then
    local list = puts[to]
    local count = list.n + 2
    list[count - 1], list[count], list.n = ids[r], value, count
  end
  if old and to ~= bucket then
    local list = drops[bucket]
    local count = list.n + 1
    list[count], list.n = ids[r], count
  end
end
for _, group in ipairs(groups) do
  told[group.reason] = told[group.reason] + group.n
  if group.verdict == 'ack' then slow = slow + group.late end
end
