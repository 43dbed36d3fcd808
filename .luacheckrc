std = "lua51"
max_line_length = 100
read_globals = { "redis", "KEYS", "bit", "struct", "cjson" }
-- parts/rows.lua escapes the texts in it.
globals = { "ARGV" }
files["tests/fake/lua"] = { std = "max" }
