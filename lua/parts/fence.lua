-- The fencing token. A number that was applied before is a repeat, whether or not the producer got
-- the reply. Needs producer, fence, buckets, current, now. Gives fence_key, fence_value (to be
-- written to it), and fence_old, the key that holds the producer's previous fence.
-- From lua/spec.json, by python -m proof.spec
local MAX_FENCES, MAX_PRODUCER, MAX_DIGEST = 100000, 128, 32

local fence_key, fence_old, fence_value
if producer == '' then
  if fence ~= '' then return refuse('ARGS', 'a fence needs a producer') end
else
  local seq, digest = string.match(fence, '^([1-9][0-9]*)$'), ''
  if not seq then seq, digest = string.match(fence, '^([1-9][0-9]*):([0-9a-fA-F]+)$') end
  if #producer > MAX_PRODUCER then
    return refuse('ARGS', 'a producer has up to ' .. MAX_PRODUCER .. ' bytes, this one has '
      .. #producer)
  elseif not seq or #seq > 15 or #digest > MAX_DIGEST then
    return refuse('ARGS', 'a fence must be <seq> or <seq>:<digest>, seq 1 to 15 digits without a '
      .. 'leading 0, digest up to ' .. MAX_DIGEST .. ' hex digits')
  end
  local durable = string.byte(producer) == 64
  local keys, fences, last = {}, 0, nil
  if durable then
    keys[1] = shard .. ':fence:durable'
  else
    for age = 0, buckets - 1 do keys[age + 1] = shard .. ':fence:' .. (current - age) % buckets end
  end
  for _, key in ipairs(keys) do
    fences = fences + call('HLEN', key)
    if not last then
      last = call('HGET', key, producer)
      fence_old = last and key
    end
  end
  if last then
    -- A double holds 15 digits exactly.
    local last_seq, last_digest = string.match(last, '^(%d+):(%x*)')
    local order = tonumber(seq) - tonumber(last_seq)
    if order == 0 and digest ~= last_digest then
      return refuse('CONFLICT', 'batch ' .. seq .. ' came back with other content; its content '
        .. 'differs between runs (rand, uuid, now, an unordered limit?), or the namespace was '
        .. 'resharded since the first run')
    elseif order <= 0 then
      call('UNLINK', shard) -- a first write that maxmemory does not refuse
      call('HINCRBY', meta, 'repeated', 1)
      return { 0, last_seq }
    end
  elseif fences >= MAX_FENCES then
    return refuse('FENCE', 'this shard holds ' .. fences .. ' fences, too many for a new one; '
      .. 'reuse producer names')
  end
  fence_key = keys[1]
  fence_value = seq .. ':' .. digest .. (durable and ':' .. string.format('%.0f', now) or '')
end
