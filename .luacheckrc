std = "lua51"
max_line_length = 100
read_globals = { "redis", "KEYS", "ARGV", "bit", "struct", "cjson" }
files["acker_redis/fake_lua"] = { std = "max" }
