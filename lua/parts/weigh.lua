-- XOR the deltas of a block onto its checksums, in scratch keys. Needs shard, orphaned. Gives
-- weigh(item), which sets item.result to the key of the new checksums, if there are any, and
-- returns whether all are zero; scratch; and scratched, whether a scratch key was written.
local NEAR = 32
local scratch, scratch_of = shard .. ':scratch', shard .. ':scratch:'
local scratched, zeros = false, {}

-- Write the deltas of sparse slots into the scratch key. Slots that are close together share one
-- write, with zeros between them: a write costs more than some string operations.
local function spread(item)
  local at, deltas, parts, n, from, last = item.at, item.deltas, {}, 0, 0, -1
  call('SET', scratch, '')
  for k = 1, #at do
    local slot = at[k]
    if slot >= item.slots then
      orphaned = orphaned + #at - k + 1
      break
    end
    local gap = slot - last - 1
    if n > 0 and (gap > NEAR or n > 1000) then
      call('SETRANGE', scratch, 8 * from, n > 1 and table.concat(parts, '', 1, n) or parts[1])
      n = 0
    end
    if n == 0 then
      from = slot
    elseif gap > 0 then
      n = n + 1
      zeros[gap] = zeros[gap] or string.rep('\0', 8 * gap)
      parts[n] = zeros[gap]
    end
    n, last = n + 1, slot
    parts[n] = sub(deltas, 8 * k - 7, 8 * k)
  end
  if n > 0 then call('SETRANGE', scratch, 8 * from, table.concat(parts, '', 1, n)) end
end

-- Compute the new checksums of a block, and return whether all of them are zero.
local function weigh(item)
  if not item.header then
    local size = #item.deltas / 8
    zeros[size] = zeros[size] or string.rep('\0', 8 * size)
    return item.deltas == zeros[size]
  elseif item.deltas ~= '' then
    if item.at then spread(item) else call('SET', scratch, item.deltas) end
    item.result, scratched = scratch_of .. item.name, true
    call('BITOP', 'XOR', item.result, item.key, scratch)
  end
  return call('BITPOS', item.result or item.key, '1') == -1
end
