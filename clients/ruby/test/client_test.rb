# frozen_string_literal: true

# Tests that need no Redis; tests/languages of the project has all others.

require "stringio"
require_relative "../lib/acker_redis"

def check(what, found)
  abort "failed: #{what}" unless found
end

def refused(what, code = "REFUSED")
  yield
  abort "failed: #{what} was accepted"
rescue AckerRedis::Error => e
  check("#{what}: #{e.code}", e.code == code)
end

Batch = AckerRedis::Batch
[0, -1, 2**63, 1.5, 2.0**60, "5", nil, true].each { |id| refused(id.inspect) { Batch.new.ack(7, id) } }
check("the largest id", Batch.new.ack(7, 2**63 - 1).size == 1)
refused("slot 4095") { Batch.new.touch(1 << 62 | 4095) }
refused("a text that is not UTF-8") { Batch.new("t").track(1, "\xff", []) }
check("other encodings", Batch.new("t").track(1, "ü".encode("UTF-16LE"), []).parts(1)[0].argv[4] == "ü".b)
check("a why is cut between characters", AckerRedis.clip("a\nb#{'日' * 300}") == "a b#{'日' * 84}")
client = AckerRedis::Client.new(Redis.new(port: 1), "n", linger: 1000)
message = client.process("7:40")
client.process("7:41").ack
state = ->(name) { client.instance_variable_get(name) }
lane = state[:@lane]
child = fork do
  client.flush # sends no rows of its parent
  refused("a message of the parent", "CLOSED") { message.emit }
  check("another lane", state[:@lane] != lane && state[:@queue].empty?)
end
Process.wait(child)
check("a forked child has a new lane and no rows", $?.success?) # rubocop:disable Style/SpecialGlobalVars
check("the parent keeps its rows", state[:@queue].size == 1)

# A batch that is given up raises in each thread that has rows in it, also if another thread sent it.
client = AckerRedis::Client.new(Redis.new(port: 1), "n", retry_for: 0, linger: 1000)
client.process("7:41").ack
Thread.new { refused("a batch that was given up", "UNAVAILABLE") { client.flush } }.join
refused("a batch that another thread gave up", "UNAVAILABLE") { client.flush }
client.flush # the error is raised once in each thread

# An interruption during a call: the batch stays in the queue, under its number.
slow = Object.new
def slow.evalsha(*)
  raise Interrupt
end
client = AckerRedis::Client.new(slow, "n", linger: 1000)
client.process("7:41").ack
begin
  client.flush
rescue Interrupt
  check("the batch is kept", client.instance_variable_get(:@queue).size == 1)
end
failing = client.process("7:42")
begin
  client.process("7:43") { |m| failing = m and raise Interrupt }
rescue Interrupt
  refused("a message that was failed", "CLOSED") { failing.ack }
end

# A client whose server replies a configuration.
meta = { "shards" => 1, "buckets" => 3, "tick_ms" => 1000, "edges" => "mill,shop", "salt" => "0f" * 16 }
server = Object.new
server.define_singleton_method(:evalsha) { |*| [0, [], 0, [], 0, meta.to_a.flatten.map(&:to_s)] }
client = AckerRedis::Client.new(server, "n", linger: 1000)
join = client.process("7:40,8:41", "7:42")
join.emit(key: "mill №2")
refused("a key that was used, in another encoding") { join.emit([0], key: "mill №2".b) }
refused("a key that is a Float") { join.emit(key: 1.5) }
$stderr = StringIO.new
2.times { client.process("7:43").emit(edge: "bin") }
said = $stderr.string
$stderr = STDERR
check("an unlisted edge is logged once", said.scan('edge "bin"').size == 1)
check("codes", client.ids.draw(9, edge: :shop).all? { |id| id >> 55 == 2 })
check("the salt is hidden", !"#{client.inspect}#{join.inspect}#{client.ids.inspect}".include?("0f0f"))
