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
["p@0", "orders/3@1000~2", "ü@#{10**19 - 1}"].each do |label|
  refused(label) { Batch.new("t").track_block(label, [1], block: 1) }
end
["p@", "p@01", "p@1~0", "p@#{10**19}", "p@1~", "@1 "].each { |label| Batch.new("t").track_block(label, [1], block: 1) }
refused("a block without a number") { Batch.new("t").track_block("page", [1], block: nil) }

large = Batch.new("t")
64.times { |n| large.track_block("block #{n}", [1] * 4095, block: n) }
check("a call has at most 1 MiB", large.parts(1).map { |part| part.argv.size / 7 } == [31, 31, 2])

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

# A client whose server replies a configuration. The expected ids and rows are those of the Python client.
def client_of(edges)
  meta = { "shards" => 1, "buckets" => 3, "tick_ms" => 1000, "edges" => edges, "salt" => "0f" * 16 }
  server = Object.new
  server.define_singleton_method(:evalsha) { |*| [0, [], 0, [], 0, meta.to_a.flatten.map(&:to_s)] }
  AckerRedis::Client.new(server, "n", linger: 1000)
end

plain = client_of("").process("7:40,8:41", "7:42")
check("63 bits", plain.emit(key: "mill №2") == "7:2962338702207620103,8:2111372662918847227")
client = client_of("mill,shop")
join = client.process("7:40,8:41", "7:42")
check("a derived id", join.emit(key: "mill №2", edge: "shop") == "7:83629229593426452,8:80305143502454682")
refused("a key that was used") { join.emit([0], key: "mill №2".b) }
[client, client_of("")].each do |one|
  check("the number of a block", one.ids.block("shop", "page №2") == 1_057_557_820_031_455)
end
utf16 = "page №2".encode("UTF-16LE")
check("a label in another encoding", client.ids.block("shop", utf16) == 1_057_557_820_031_455)
refused("a label of Spark") { AckerRedis::Client.new(Redis.new(port: 1), "n").track_block("t", "p@7", [1]) }
refused("a key that is a Float") { join.emit(key: 1.5) }
join.ack
batch = client.instance_variable_get(:@queue).first
deltas = batch.parts(1)[0].argv[2].unpack("Q>*")
check("whole rows with the code", deltas == [83_629_229_593_426_454, 80_305_143_502_454_707])

$stderr = StringIO.new
2.times { client.process("7:43").emit(edge: "bin") }
said = $stderr.string
$stderr = STDERR
check("an unlisted edge is logged once", said.scan('edge "bin"').size == 1)
check("codes", client.ids.draw(9, edge: :shop).all? { |id| id >> 55 == 2 })
check("the salt is hidden", !"#{client.inspect}#{join.inspect}#{client.ids.inspect}".include?("0f0f"))

record = [9, 1].pack("Q>C") + ("\0" * 10) + "\1t".b + 'a \"b\" \\\\é'.b
tree = client.send(:tree, record, 0)
# Entries of a block: slot 0 has expired, slot 3 is complete, slot 9 has failed, the others are absent.
mixed = {
  "verdict" => "mixed", "reason" => "expired", "n" => "2", "block" => "0000000000007", "label" => "page",
  "age" => "5", "cause" => "idle", "idle" => "4", "slots" => "10", "nacked" => "8000", "failed" => "0040",
  "residuals" => "00000000000000ff", "present" => "9040"
}
read = lambda do |changed|
  fields = mixed.merge(changed).compact
  client.send(:entry, 0, "1-0", fields).outcomes.map { |o| [o.verdict, o.anchor & 4095, o.residual] }
end
check("an expired block", read.call({}) == [["nack", 0, 255], ["ack", 3, 0]])
acked = { "verdict" => "ack", "reason" => "completed", "nacked" => nil, "residuals" => nil }
check("a complete block", read.call(acked) == [["ack", 0, 0], ["ack", 3, 0]])
%w[failed nacked present].product(%W[90 904 90400 904000 9g40 9041 0x40 [0,3] 9040\n]) do |name, bitmap|
  refused("#{name} #{bitmap}", "SCHEMA") { read.call({ name => bitmap }) }
end
%w[failed nacked present residuals slots n].product(["", nil, "0"]) do |name, value|
  refused("#{name} #{value.inspect}", "SCHEMA") { read.call({ name => value }) }
end
[["present", "9060"], ["failed", "1040"], ["nacked", "9000"], ["residuals", "0" * 15 + "x"]].each do |name, value|
  refused("#{name} #{value}", "SCHEMA") { read.call({ name => value }) }
end
check("a slot after the first byte", AckerRedis.slots_of("\x80\x40".b, 10) == [0, 9])

# The replies of show for slots of a block of ten trees.
show = lambda do |slot, flags, *block|
  header = ("\0" * 10) + [flags, 10].pack("Cn") + ("0" * 8) + "\1tpage"
  found = client.send(:tree_in_block, 1 << 62 | slot, header.b, 0, *block)
  found&.values_at(:checksum, :failed, :source_id, :why)
end
sums = (1..10).to_a.pack("Q>*")
check("a tree of a full block", show.call(9, 0, sums, "", "") == [10, false, "page", ""])
check("a failed tree", show.call(9, 2, sums, "\x80\x40".b, "\x90\x40".b) == [10, true, "page", ""])
check("an absent slot", show.call(1, 2, sums, "", "\x90\x40".b).nil? && show.call(10, 0, sums, "", "").nil?)
[[0, nil, "", ""], [0, sums[8..], "", ""], [2, sums, "", ""], [0, sums, "", "\xff\xc0".b], [0, sums, "\x80", ""],
 [2, sums, "", "\x90"], [0, sums, "\x80\x41", ""], [4, sums, "", ""], [4, sums, "\0\0", ""],
 [2, sums, "\x40\0", "\x90\x40".b], [2, sums, "", "\0\0"]].each do |flags, *block|
  refused("a damaged block #{block}", "SCHEMA") { show.call(0, flags, *block) }
end

check("a record", tree.values_at(:checksum, :failed, :task, :source_id) == [9, true, "t", 'a "b" \\é'])
