# frozen_string_literal: true

# Tests that need no Redis; tests/languages of the project has all others.

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
check("the number of a block", AckerRedis.block_number("shop", "page 1") == 12_104_666_997_411)

large = Batch.new("t")
64.times { |n| large.track_block("block #{n}", [1] * 4095) }
check("a call has at most 1 MiB", large.parts(1).map { |part| part.argv.size / 6 } == [31, 31, 2])

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
