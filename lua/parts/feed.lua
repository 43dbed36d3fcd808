-- Publish verdicts for the live feed. Needs namespace, and conf_salt. Gives
-- publish(verdict, source, head, tail): head and tail are a JSON object without its end.
local publish
do
  local ending

  function publish(verdict, source, head, tail)
    -- All databases of a server have the same channels. So a message says of which namespace of
    -- this name it is; the digest reveals nothing of the salt.
    ending = ending or (conf_salt
      and ',"of":"' .. string.sub(redis.sha1hex('feed:' .. conf_salt), 1, 16) .. '"}' or '}')
    -- A user without the right to PUBLISH loses the live feed only; the stream has the entry.
    redis.pcall('PUBLISH', 'acker:' .. namespace .. ':' .. verdict .. ':' .. source,
      head .. tail .. ending)
  end
end
