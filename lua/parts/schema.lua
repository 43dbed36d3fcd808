-- Check that the namespace exists, with a schema that this script supports. Needs conf, whose first
-- field is the schema.
if not conf[1] then
  return refuse('NAMESPACE', 'not created: ' .. shard .. '; create it (acker-redis create), or '
    .. 'finish dropping it (acker-redis drop)')
elseif conf[1] ~= '2' then
  return refuse('SCHEMA', 'this script supports schema 2 only, the namespace has another; use '
    .. 'the version of acker-redis that wrote it')
end
