"""fakeredis as a test server: the scripts must also run on its Lua."""
