"""fakeredis as a test server: the scripts run on its Lua too."""
