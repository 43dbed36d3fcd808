-- Refuse a meta that is too large, before it is read whole: any producer can write it, and to read
-- millions of fields would stop Redis for all. A thousand sources have four fields each, the rest
-- are some hundred. Needs meta.
-- From lua/spec.json, by python -m proof.spec
local MAX_FIELDS = 10000

if call('HLEN', meta) > MAX_FIELDS then
  return refuse('SCHEMA', meta .. ' has been tampered with: more than ' .. MAX_FIELDS .. ' fields')
end
