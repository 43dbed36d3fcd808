-- How long the trees took, by the number of binary digits of the ms. It is a figure, no more: if it
-- cannot be counted, the call stands all the same. Needs now, and completed: trees that were acked,
-- by when they began.
do
  -- Trees that took longer are counted as if they had taken so long, 24 days.
  local MAX_AGE = 2 ^ 31 - 1
  local latency, sum = {}, 0
  for first, number in pairs(completed) do
    local age = math.max(0, math.min(now - first, MAX_AGE))
    local _, digits = math.frexp(age)
    latency[digits], sum = (latency[digits] or 0) + number, sum + age * number
  end
  for digits, number in pairs(latency) do
    redis.pcall('HINCRBY', meta, 'latency:' .. digits, number)
  end
  if sum > 0 then redis.pcall('HINCRBY', meta, 'latency_ms', string.format('%.0f', sum)) end
end
