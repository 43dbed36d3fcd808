-- Histogram of the trees' latency, by the number of binary digits of the ms. Best effort: if it
-- cannot be counted, the call still succeeds. Needs now, and completed: number of acked trees by
-- the time of their first row.
do
  -- 24 days. A longer latency is counted as this one.
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
