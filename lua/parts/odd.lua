-- Count on which edges the residuals of expired trees are odd. Needs conf_edges, the names of the
-- edges. Gives see(high), called with the high half of each residual, and count_odd().
local see, count_odd
do
  local codes = {}

  function see(high)
    local code = math.floor(high / 2 ^ 23) % 256
    codes[code] = (codes[code] or 0) + 1
  end

  function count_odd()
    if conf_edges == '' then return end
    local edges, odd = select(2, string.gsub(conf_edges, ',', '')) + 1, {}
    for code, number in pairs(codes) do
      local none = true
      for edge = 0, edges - 1 do
        if math.floor(code / 2 ^ edge) % 2 == 1 then
          odd[edge], none = (odd[edge] or 0) + number, false
        end
      end
      if none then odd.none = (odd.none or 0) + number end
    end
    for edge, number in pairs(odd) do call('HINCRBY', meta, 'odd:' .. edge, number) end
  end
end
