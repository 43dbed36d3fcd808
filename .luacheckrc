std = "lua51"
max_line_length = 100
read_globals = { "redis", "KEYS", "ARGV", "bit", "struct", "cjson" }
files["tests/fake/lua"] = { std = "max" }
