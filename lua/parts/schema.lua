-- Is there a namespace, of the schema that this script knows? Needs conf, which begins with it.
if not conf[1] then
  return refuse('NAMESPACE', 'not created: ' .. shard)
elseif conf[1] ~= '1' then
  return refuse('SCHEMA', 'this script knows schema 1, the namespace has another')
end
