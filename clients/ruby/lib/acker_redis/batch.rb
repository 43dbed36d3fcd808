# frozen_string_literal: true

# Ids, rows, batches, messages, and the bytes that go over the wire. No I/O. The contract:
# lua/README.md of the project.

require "digest"
require "securerandom"

module AckerRedis
  # Every error of this gem. +code+ is that of the scripts (lua/README.md, Errors), or REFUSED (it
  # cannot be, and nothing was sent), LANE, UNAVAILABLE, LATE, REJECTED, CLOSED, REDIS.
  class Error < StandardError
    attr_reader :code

    def initialize(code, words)
      super(words)
      @code = code
    end
  end

  TRACK = 1
  FAIL = 2
  TOUCH = 4
  MAX_ROWS = 1024
  MAX_BLOCKS = 64
  # Bytes of all source ids, labels and whys of a batch.
  MAX_TEXTS = 64 * 1024
  MAX_TEXT = 255
  MAX_SLOTS = 4095
  # Bytes of one call of apply_blocks.
  MAX_CALL = 1024 * 1024
  # Characters of a message's ids, and trees that it may belong to.
  MAX_MESSAGE = 64 * 1024
  MAX_TREES = MAX_MESSAGE / 40
  ANCHOR_MAX = 2**62 - 1
  TUPLE_MAX = 2**63 - 1
  BLOCK_MAX = 2**50 - 1
  EMPTY = "".b.freeze

  # What became of a batch, over all its calls. +rejected+: anchors of trees, +rejected_blocks+:
  # numbers of blocks, that were nacked at once, because too much is pending: emit nothing of them.
  # +repeated+: a call had been applied before, its counts are missing.
  Applied = Struct.new(:tracked, :acked, :failed, :rejected, :rejected_blocks, :repeated)

  module_function

  def refuse(words)
    raise Error.new("REFUSED", words)
  end

  # So many tuple ids, 1 .. 2^63-1, each from the system's random source.
  def new_ids(count, max = TUPLE_MAX)
    # Not from a pool: a copy of the machine would draw the same again.
    SecureRandom.random_bytes(8 * count).unpack("Q>*").map do |raw|
      id = raw & max
      id.zero? ? new_ids(1, max).first : id
    end
  end

  # An anchor of a loose tree, 1 .. 2^62-1.
  def new_anchor
    new_ids(1, ANCHOR_MAX).first
  end

  # Number of a block from its source's own identity: the same parts, the same number.
  def block_number(*identity)
    text = identity.map { |part| part.to_s.b }.map { |part| "#{part.bytesize}:".b + part }.join
    Digest::SHA256.digest(text).unpack1("Q>") >> 14
  end

  # Anchor of a tree in a block.
  def block_anchor(block, slot)
    unless slot.is_a?(Integer) && slot.between?(0, MAX_SLOTS - 1)
      refuse("a slot is a number from 0 to #{MAX_SLOTS - 1}, not #{slot.inspect}")
    end
    1 << 62 | check_block(block) << 12 | slot
  end

  # Shard of an anchor; of a block, for all of its anchors.
  def shard_of(anchor, shards)
    (anchor > ANCHOR_MAX ? anchor >> 12 & BLOCK_MAX : anchor) % shards
  end

  def check_anchor(anchor)
    return anchor if anchor.is_a?(Integer) && anchor.between?(1, ANCHOR_MAX)
    return anchor if anchor.is_a?(Integer) && anchor.between?(1, TUPLE_MAX) && anchor & 4095 < MAX_SLOTS

    refuse("an anchor is an Integer from 1 to 2^62-1, or one of a block's 4095 slots, not #{anchor.inspect}")
  end

  def check_tuple(id)
    return id if id.is_a?(Integer) && id.between?(1, TUPLE_MAX)

    refuse("a tuple id is an Integer from 1 to 2^63-1, not #{id.inspect}")
  end

  def check_delta(delta)
    return delta if delta.is_a?(Integer) && delta.between?(0, TUPLE_MAX)

    refuse("a delta is an Integer from 0 to 2^63-1, not #{delta.inspect}")
  end

  def check_block(block)
    return block if block.is_a?(Integer) && block.between?(0, BLOCK_MAX)

    refuse("a block is an Integer from 0 to 2^50-1, not #{block.inspect}")
  end

  # Bytes of the why of a whole row.
  def check_row(anchor, delta, flags = 0, why = "")
    check_anchor(anchor)
    check_delta(delta)
    refuse("flags of a whole row are FAIL, TOUCH, both or 0, not #{flags.inspect}") unless [0, 2, 4, 6].include?(flags)
    flags & FAIL == 0 ? EMPTY : check_text("why", why, 0)
  end

  def check_name(kind, name)
    return name if name.is_a?(String) && name.match?(/\A[A-Za-z0-9_.-]{1,64}\z/)

    refuse("a #{kind} is 1 to 64 of A-Z a-z 0-9 _ . -, not #{name.inspect}")
  end

  # The bytes of a text, as the scripts take them.
  def check_text(kind, text, least)
    refuse("a #{kind} is a String, not #{text.inspect}") unless text.is_a?(String)
    data = text.encoding == Encoding::BINARY ? text.dup.force_encoding("UTF-8") : text.encode("UTF-8")
    refuse("a #{kind} is text that UTF-8 can hold, not #{text.inspect}") unless data.valid_encoding?
    unless data.bytesize.between?(least, MAX_TEXT)
      refuse("a #{kind} has #{least} to #{MAX_TEXT} bytes, this one #{data.bytesize}")
    end
    refuse("a #{kind} has no control characters: #{text.inspect}") if data.match?(/[\x00-\x1f\x7f]/)
    data.b
  rescue EncodingError
    refuse("a #{kind} is text that UTF-8 can hold, not #{text.inspect}")
  end

  # Words for people, as a row can hold them: 255 bytes, no control characters.
  def clip(words)
    words = "#{words.class}: #{words.message}" if words.is_a?(Exception)
    text = words.to_s.encode("UTF-8", invalid: :replace, undef: :replace).scrub.gsub(/[\x00-\x1f\x7f]/, " ")
    text.byteslice(0, MAX_TEXT).scrub("")
  end

  # XOR of distinct tuple ids; two messages with one id would cancel.
  def xor_ids(ids)
    list = ids.to_a
    refuse("two messages have one tuple id; draw an id for each") if list.size > 1 && list.uniq.size != list.size
    list.reduce(0) { |delta, id| delta ^ check_tuple(id) }
  end

  # Delta of a message that was processed: its id XOR the ids of all it caused.
  def whole(tuple, emitted)
    list = emitted.to_a
    refuse("a message cannot have the id of one it caused; draw another") if list.include?(check_tuple(tuple))
    tuple ^ xor_ids(list)
  end

  # Ids of a message by anchor, from its text: <anchor>:<tuple>, joined by commas.
  def parse_message(text)
    refuse("the ids of a message are a String, not #{text.inspect}") unless text.is_a?(String)
    refuse("the ids of a message have at most #{MAX_MESSAGE} characters") if text.length > MAX_MESSAGE
    return {} if text.match?(/\A[ \t]*\z/)

    ids = text.split(",", -1).each_with_object({}) do |pair, found|
      match = /\A[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*\z/.match(pair)
      refuse("an anchored tuple is <anchor>:<tuple>, not #{pair[0, 50].inspect}") unless match
      anchor = check_anchor(match[1].to_i)
      refuse("anchor #{anchor} is there twice in one message") if found.key?(anchor)
      found[anchor] = check_tuple(match[2].to_i)
    end
    check_trees(ids)
  end

  # Text of a message's ids, ordered by anchor.
  def format_message(ids)
    ids.sort.map { |anchor, id| "#{anchor}:#{id}" }.join(",")
  end

  def check_trees(ids)
    return ids if ids.size <= MAX_TREES

    refuse("a message belongs to at most #{MAX_TREES} trees, not #{ids.size}; emit several")
  end

  # One call of a script: all or nothing, under a number of its own.
  class Part
    attr_reader :script, :shard, :argv

    # +names+ are anchors of rows, or numbers of blocks, in the order of the call.
    def initialize(script, shard, argv, names)
      @script = script
      @shard = shard
      @argv = argv
      @names = names
    end

    # 16 hex digits that tell this call from others.
    def digest
      @digest ||= Digest::SHA256.hexdigest(@argv.map { |arg| "#{arg.bytesize} ".b + arg }.join)[0, 16]
    end

    # What the script's reply says; +highest+ is set when the call was a repeat.
    def read(reply)
      return { highest: Integer(reply[1]), tracked: 0, acked: 0, failed: 0, rejected: [] } if reply[0].zero?

      rejected = reply[7].b.unpack("n*").map { |number| @names[number] }
      { highest: nil, tracked: reply[1], acked: reply[2], failed: reply[3], rejected: rejected }
    end
  end

  # What a batch is once it is sent: the same bytes under the same numbers, whatever happens.
  class Sent
    attr_reader :lane, :seq, :shards, :parts, :times, :replies, :doubt, :digest
    attr_accessor :fence_ms

    def initialize(lane, seq, shards, parts, digest = nil)
      @lane = lane
      @seq = seq
      @shards = shards
      @parts = parts
      @digest = digest
      @fence_ms = Float::INFINITY
      @times = {}
      @replies = {}
      @doubt = {}
    end

    # Whether nothing of it was applied, for sure.
    def refused?
      @doubt.empty? && @replies.empty?
    end

    def fence(number)
      digest = @digest || @parts[number].digest
      return "" if @lane.empty?

      digest.empty? ? (@seq + number).to_s : "#{@seq + number}:#{digest}"
    end

    def applied
      found = Applied.new(0, 0, 0, [], [], false)
      @parts.each_with_index do |part, number|
        reply = @replies[number]
        found.repeated ||= !reply[:highest].nil?
        %i[tracked acked failed].each { |field| found[field] += reply[field] }
        (part.script == "apply" ? found.rejected : found.rejected_blocks).concat(reply[:rejected])
      end
      found
    end
  end

  # Rows folded per anchor, and blocks; at most 1024 anchors, 64 blocks, 64 KiB of texts. Each method
  # raises (code REFUSED) for what cannot be, and the batch is then as it was. +task+ is the source
  # that tracks.
  class Batch
    Row = Struct.new(:anchor, :delta, :flags, :source, :why)
    private_constant :Row

    # Where it was sent, and what was answered; from then on no row comes in.
    attr_accessor :sent

    def initialize(task = nil)
      @task = task && AckerRedis.check_name("task", task)
      @rows = {}
      @blocks = {}
      @texts = 0
    end

    def size
      @rows.size
    end

    def empty?
      @rows.empty? && @blocks.empty?
    end

    # Whether another row could be one too many.
    def full?
      @rows.size >= MAX_ROWS || @texts > MAX_TEXTS - MAX_TEXT
    end

    def anchors
      @rows.keys
    end

    # Begin a tree: the source's own id for it, and the ids of all its first messages.
    def track(anchor, source_id, emitted)
      needs_task
      text = AckerRedis.check_text("source id", source_id, 1)
      if AckerRedis.check_anchor(anchor) > ANCHOR_MAX
        AckerRedis.refuse("anchor #{anchor} is in a block; a block is tracked as a whole: track_block")
      end
      if @rows[anchor] && @rows[anchor].flags & TRACK != 0
        AckerRedis.refuse("anchor #{anchor} is tracked twice; draw one per attempt")
      end
      fold(anchor, AckerRedis.xor_ids(emitted), TRACK, text).source = text
      self
    end

    # Begin a block of trees: for each slot the XOR of the ids of its first messages, 0 where no tree
    # stands. Returns the block's number, derived from task and label unless it is given.
    def track_block(label, deltas, block: nil)
      needs_task
      text = AckerRedis.check_text("label", label, 1)
      number = block.nil? ? AckerRedis.block_number(@task, label) : AckerRedis.check_block(block)
      values = deltas.map { |delta| AckerRedis.check_delta(delta) }
      unless values.size.between?(1, MAX_SLOTS)
        AckerRedis.refuse("a block has 1 to #{MAX_SLOTS} trees, not #{values.size}")
      end
      AckerRedis.refuse("block #{label} is tracked twice; name each attempt") if @blocks.key?(number)
      @rows.each_key do |anchor|
        next unless block_of(anchor) == number && (anchor & 4095) >= values.size

        AckerRedis.refuse("a row of this batch is of slot #{anchor & 4095}, which block #{label} has not")
      end
      room(0, text.bytesize, 1)
      @texts += text.bytesize
      @blocks[number] = [text, values]
      number
    end

    # A message was processed; +emitted+ are the ids of all messages that it caused.
    def ack(anchor, tuple, emitted = [])
      fold(anchor, AckerRedis.whole(tuple, emitted), 0, EMPTY)
      self
    end

    # The tree failed. With +tuple+, and +emitted+, the message counts as processed.
    def fail(anchor, why = "", tuple = nil, emitted = [])
      add(anchor, tuple.nil? ? AckerRedis.xor_ids(emitted) : AckerRedis.whole(tuple, emitted), FAIL, why)
    end

    # More time is needed: the clock of the tree, or of its block, starts anew.
    def touch(anchor)
      add(anchor, 0, TOUCH)
    end

    # Fold in a row that is whole already: the delta of a message, and FAIL or TOUCH.
    def add(anchor, delta, flags = 0, why = "")
      text = AckerRedis.check_row(anchor, delta, flags, why)
      text = EMPTY unless (@rows[anchor]&.why || EMPTY).empty? # the first that says something wins
      row = fold(anchor, delta, flags, text)
      row.why = text unless text.empty?
      self
    end

    # What is sent: the loose rows of each shard, then its blocks.
    def parts(shards)
      in_blocks, loose = @rows.values.partition { |row| row.anchor > ANCHOR_MAX }
      parts = loose.group_by { |row| AckerRedis.shard_of(row.anchor, shards) }.map do |shard, rows|
        pack_loose(shard, rows)
      end
      blocks = @blocks.transform_values { [] }
      in_blocks.each { |row| (blocks[block_of(row.anchor)] ||= []) << row }
      packed = blocks.map { |number, rows| [number, pack_block(number, rows.sort_by(&:anchor))] }
      packed.group_by { |number, _| number % shards }.each do |shard, its|
        calls(its).each { |call| parts << Part.new("apply_blocks", shard, call.flat_map(&:last), call.map(&:first)) }
      end
      parts
    end

    private

    def block_of(anchor)
      anchor > ANCHOR_MAX ? anchor >> 12 & BLOCK_MAX : nil
    end

    def needs_task
      AckerRedis.refuse("name the source, Batch.new(task), to track in this batch") unless @task
    end

    def room(rows, texts, blocks)
      AckerRedis.refuse("this batch was sent already; put new rows into a new one") if @sent
      if @rows.size + rows > MAX_ROWS || @texts + texts > MAX_TEXTS
        AckerRedis.refuse("a batch has at most #{MAX_ROWS} rows and #{MAX_TEXTS} bytes of texts; begin another")
      end
      return if @blocks.size + blocks <= MAX_BLOCKS

      AckerRedis.refuse("a batch tracks at most #{MAX_BLOCKS} blocks; begin another")
    end

    def fold(anchor, delta, flags, text)
      row = @rows[anchor]
      if row.nil?
        _, values = @blocks[block_of(AckerRedis.check_anchor(anchor))]
        if values && (anchor & 4095) >= values.size
          AckerRedis.refuse("block #{block_of(anchor)} has #{values.size} trees, and no slot #{anchor & 4095}")
        end
      end
      room(row ? 0 : 1, text.bytesize, 0)
      row ||= @rows[anchor] = Row.new(anchor, 0, 0, EMPTY, EMPTY)
      @texts += text.bytesize
      # In this order: whoever is interrupted in between must not leave the delta of a failure alone.
      row.flags |= flags
      row.delta ^= delta
      row
    end

    def pack_loose(shard, rows)
      sources = rows.select { |row| row.flags & TRACK != 0 }.map(&:source)
      whys = rows.select { |row| row.flags & FAIL != 0 }.map(&:why)
      columns = [rows.map(&:flags).pack("C*"), rows.map(&:anchor).pack("Q>*"), rows.map(&:delta).pack("Q>*")]
      task = sources.empty? ? EMPTY : @task.b
      Part.new("apply", shard, [*columns, task, *sources, *whys], rows.map(&:anchor))
    end

    # The six arguments of a block; its rows are ordered by slot.
    def pack_block(number, rows)
      changed = rows.reject { |row| row.delta.zero? }
      flags = rows.any? { |row| row.flags & TOUCH != 0 } ? TOUCH : 0
      header = slots = EMPTY
      label, values = @blocks[number]
      if values
        flags |= TRACK
        header = [values.size, @task.bytesize].pack("nC") + @task.b + label
        column = values.dup
        changed.each { |row| column[row.anchor & 4095] ^= row.delta }
      else
        slots = changed.map { |row| row.anchor & 4095 }.pack("n*")
        column = changed.map(&:delta)
      end
      failed = rows.select { |row| row.flags & FAIL != 0 }
      failed = failed.map { |row| [row.anchor & 4095, row.why.bytesize].pack("nC") + row.why }.join
      [[flags].pack("C"), [number].pack("Q>"), header, slots, column.pack("Q>*"), failed]
    end

    # The fewest calls that may carry these blocks. (Of so few rows the other limits keep.)
    def calls(blocks)
      bytes = 0
      blocks.each_with_object([]) do |block, found|
        size = block.last.sum(&:bytesize)
        if found.empty? || found.last.size == MAX_BLOCKS || bytes + size > MAX_CALL
          found << []
          bytes = 0
        end
        bytes += size
        found.last << block
      end
    end
  end

  # Messages that are processed together, mostly one, and what they caused: Client#process makes it.
  # Any thread may use it; a forked child may not go on with it.
  class Processing
    def initialize(client, texts)
      @client = client
      @inputs = texts.map { |text| AckerRedis.parse_message(text) }
      pairs = @inputs.flat_map(&:to_a)
      AckerRedis.refuse("one message is there twice; its rows would cancel") if pairs.uniq.size != pairs.size
      @edges = [0] * texts.size
      @state = :open
      @mutex = Mutex.new
      @pid = Process.pid
    end

    # Text to send with one message that these inputs caused: all of them, or those at these places;
    # "" of an unanchored one.
    def emit(places = nil)
      places = places.nil? ? (0...@inputs.size).to_a : Array(places)
      AckerRedis.refuse("an input is there twice") if places.uniq.size != places.size
      places.each do |place|
        unless place.is_a?(Integer) && place.between?(0, @inputs.size - 1)
          AckerRedis.refuse("there is no input #{place.inspect}; they count from 0")
        end
      end
      @mutex.synchronize do
        check_open
        edges, ids = draw(places)
        # An edge is in its row before anybody holds the id.
        places.zip(edges) { |place, edge| @edges[place] ^= edge }
        AckerRedis.format_message(ids)
      end
    end

    # They were processed. Emit before.
    def ack
      @client.add(take(:acked) { rows(0, true) })
    end

    # They failed, and with them their trees. After an ack, failures alone.
    def fail(why = "")
      @client.add(take(:failed) { |was| rows(FAIL, was == :open, AckerRedis.clip(why)) })
    end

    # More time is needed.
    def touch
      @client.add(@mutex.synchronize { check_open && rows(TOUCH, false) })
    end

    def open?
      @state == :open
    end

    private

    def check_open
      raise Error.new("CLOSED", "this message was #{@state} before") if @state != :open

      check_process
    end

    # A child's emit would be missing in the row of its parent, which could then ack falsely.
    def check_process
      return true if @pid == Process.pid

      raise Error.new("CLOSED", "this message is its parent's; a forked child processes its own")
    end

    def take(state)
      @mutex.synchronize do
        check_process
        check_open unless @state == :acked && state == :failed
        was = @state
        @state = state
        yield was
      end
    end

    def draw(places)
      loop do
        edges = AckerRedis.new_ids(places.size)
        ids = Hash.new(0)
        places.zip(edges) { |place, edge| @inputs[place].each_key { |anchor| ids[anchor] ^= edge } }
        # Edges that cancel: once in 2^63.
        return edges, AckerRedis.check_trees(ids) unless ids.value?(0)
      end
    end

    def rows(flags, whole, why = "")
      deltas = Hash.new(0)
      @inputs.zip(@edges) do |ids, edges|
        ids.each { |anchor, id| deltas[anchor] ^= whole ? id ^ edges : 0 }
      end
      deltas.map { |anchor, delta| [anchor, delta, flags, why] }
    end
  end
end
