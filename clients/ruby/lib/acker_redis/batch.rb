# frozen_string_literal: true

# Ids, rows, batches, messages and their encoding, without I/O. lua/README.md of the project specifies
# the protocol.

require "digest"
require "securerandom"

module AckerRedis
  # The error that this gem raises. +code+ is a code of the scripts (lua/README.md, Errors), or REFUSED
  # (invalid input, nothing was sent), LANE, UNAVAILABLE, LATE, CLOSED, REDIS.
  class Error < StandardError
    attr_reader :code

    # +passes+ is :refused if Redis refused the call for a cause that may pass, and :full if that is its memory.
    def initialize(code, words, passes = nil)
      super(words)
      @code = code
      @passes = passes
    end

    # Return whether Redis refused the call for a cause that may pass, such as a full memory or a password that
    # is being changed. The code is REDIS, and nothing was changed: the same batch may be applied again.
    def may_pass?
      !@passes.nil?
    end

    # Return whether Redis refused the call because it is at maxmemory.
    def full?
      @passes == :full
    end
  end

  # From lua/spec.json, by python -m proof.spec
  TRACK = 1
  FAIL = 2
  TOUCH = 4
  MAX_ROWS = 1024
  MAX_BLOCKS = 64
  # Bytes of all source ids and whys of a batch.
  MAX_TEXTS = 64 * 1024
  MAX_TEXT = 255
  MAX_SLOTS = 4095
  # Maximum length of a message id in characters, and maximum number of its trees.
  MAX_MESSAGE = 65536
  MAX_TREES = 1638
  MAX_SHARDS = 1024
  MIN_BUCKETS = 2
  MAX_BUCKETS = 16
  MAX_TAKE = 64
  # The bit of edge 0 in an id.
  EDGE_BIT = 55

  ANCHOR_MAX = 2**62 - 1
  TUPLE_MAX = 2**63 - 1
  BLOCK_MAX = 2**50 - 1
  EMPTY = "".b.freeze

  # The result of a batch, summed over all its calls. +rejected+ has the anchors of trees that were nacked
  # immediately, because too much is pending: emit none of their messages. +repeated+: a call had been
  # applied before, its counts are missing.
  Applied = Struct.new(:tracked, :acked, :failed, :rejected, :repeated)

  module_function

  def refuse(words)
    raise Error.new("REFUSED", words)
  end

  # Return +count+ ids, 1 .. +max+, from the system's random source. +max+ is 2^n-1. For messages of a
  # namespace with edges use IdMaker#draw.
  def new_ids(count, max = TUPLE_MAX)
    # Without a pool: a copy of the machine would draw the same ids.
    SecureRandom.random_bytes(8 * count).unpack("Q>*").map do |raw|
      id = raw & max
      id.zero? ? new_ids(1, max).first : id
    end
  end

  # Return a random anchor of a loose tree, 1 .. 2^62-1.
  def new_anchor
    new_ids(1, ANCHOR_MAX).first
  end

  # Return the anchor of a tree in a block.
  def block_anchor(block, slot)
    unless slot.is_a?(Integer) && slot.between?(0, MAX_SLOTS - 1)
      refuse("a slot is a number from 0 to #{MAX_SLOTS - 1}, not #{slot.inspect}")
    end
    refuse("a block is a number from 0 to 2^50-1, not #{block}") unless block.between?(0, BLOCK_MAX)
    1 << 62 | block << 12 | slot
  end

  def check_anchor(anchor)
    return anchor if anchor.is_a?(Integer) && anchor.between?(1, ANCHOR_MAX)
    return anchor if anchor.is_a?(Integer) && anchor.between?(1, TUPLE_MAX) && anchor & 4095 < MAX_SLOTS

    refuse("an anchor is an Integer from 1 to 2^62-1, or the anchor of a block's tree, not #{anchor.inspect}")
  end

  def check_tuple(id)
    return id if id.is_a?(Integer) && id.between?(1, TUPLE_MAX)

    refuse("a tuple id is an Integer from 1 to 2^63-1, not #{id.inspect}")
  end

  def check_delta(delta)
    return delta if delta.is_a?(Integer) && delta.between?(0, TUPLE_MAX)

    refuse("a delta is an Integer from 0 to 2^63-1, not #{delta.inspect}")
  end

  def check_name(kind, name)
    return name if name.is_a?(String) && name.match?(/\A[A-Za-z0-9_.-]{1,64}\z/)

    refuse("a #{kind} is 1 to 64 characters of A-Z a-z 0-9 _ . -, not #{name.inspect}")
  end

  # Return the UTF-8 bytes of a text.
  def check_text(kind, text, least)
    refuse("a #{kind} is a String, not #{text.inspect}") unless text.is_a?(String)
    data = text.encoding == Encoding::BINARY ? text.dup.force_encoding("UTF-8") : text.encode("UTF-8")
    refuse("a #{kind} is text that UTF-8 can encode, not #{text.inspect}") unless data.valid_encoding?
    unless data.bytesize.between?(least, MAX_TEXT)
      refuse("a #{kind} has #{least} to #{MAX_TEXT} bytes, this one #{data.bytesize}")
    end
    refuse("a #{kind} must not contain control characters: #{text.inspect}") if data.match?(/[\x00-\x1f\x7f]/)
    data.b
  rescue EncodingError
    refuse("a #{kind} is text that UTF-8 can encode, not #{text.inspect}")
  end

  # Return the slots of a bitmap, in order: bit 7 of byte 0 is slot 0. nil if no block of +count+ slots has it.
  def slots_of(bitmap, count)
    bits = bitmap.unpack1("B*")
    return unless bitmap.bytesize == (count + 7) / 8 && !bits[count..].include?("1")

    (0...count).select { |slot| bits[slot] == "1" }
  end

  # Return a text that fits the why of a row: at most 255 bytes, without control characters.
  def clip(words)
    words = "#{words.class}: #{words.message}" if words.is_a?(Exception)
    text = words.to_s.encode("UTF-8", invalid: :replace, undef: :replace).scrub.gsub(/[\x00-\x1f\x7f]/, " ")
    text.byteslice(0, MAX_TEXT).scrub("")
  end

  # Return the key of a message as UTF-8; nil for none.
  def check_key(key)
    return if key.nil?
    unless [String, Symbol, Integer].any? { |type| key.is_a?(type) }
      refuse("a key is a String, a Symbol or an Integer, not #{key.inspect}")
    end

    text = key.to_s
    text.encoding == Encoding::BINARY ? text.dup.force_encoding("UTF-8") : text.encode("UTF-8")
  rescue EncodingError
    refuse("a key is text that UTF-8 can encode, not #{key.inspect}")
  end

  # Return the XOR of distinct tuple ids; equal ids would cancel.
  def xor_ids(ids)
    list = ids.to_a
    refuse("two messages have the same tuple id; draw an id for each") if list.size > 1 && list.uniq.size != list.size
    list.reduce(0) { |delta, id| delta ^ check_tuple(id) }
  end

  # Return the delta of a processed message: its id XOR the ids of all messages that it caused.
  def whole(tuple, emitted)
    list = emitted.to_a
    if list.include?(check_tuple(tuple))
      refuse("a message and one that it caused have the same id; draw another")
    end
    tuple ^ xor_ids(list)
  end

  # Parse a message id, <anchor>:<tuple> joined by commas; return its tuple ids by anchor.
  def parse_message(text)
    refuse("a message id is a String, not #{text.class}") unless text.is_a?(String)
    refuse("the text of a message id has at most #{MAX_MESSAGE} characters") if text.length > MAX_MESSAGE
    return {} if text.match?(/\A[ \t]*\z/)

    ids = text.split(",", -1).each_with_object({}) do |pair, found|
      match = /\A[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*\z/.match(pair)
      # Errors reach logs, and an id is enough to ack its message.
      refuse("an anchored tuple is <anchor>:<tuple>, not #{pair[0, 50].tr("0-9", "#").inspect}") unless match
      anchor = check_anchor(match[1].to_i)
      refuse("anchor #{anchor} occurs twice in one message id") if found.key?(anchor)
      found[anchor] = check_tuple(match[2].to_i)
    end
    check_trees(ids)
  end

  # Return the text of a message id, ordered by anchor.
  def format_message(ids)
    ids.sort.map { |anchor, id| "#{anchor}:#{id}" }.join(",")
  end

  def check_trees(ids)
    return ids if ids.size <= MAX_TREES

    refuse("a message belongs to at most #{MAX_TREES} trees, not #{ids.size}; emit several, each anchored to " \
           "some of the inputs")
  end

  # One call of a script: applied completely or not at all, under its own number.
  class Part
    attr_reader :script, :shard, :argv

    # +anchors+ are those of loose rows, in the order of the call.
    def initialize(script, shard, argv, anchors = [])
      @script = script
      @shard = shard
      @argv = argv
      @anchors = anchors
    end

    # Return 16 hex digits that identify the content of this call.
    def digest
      @digest ||= Digest::SHA256.hexdigest(@argv.map { |arg| "#{arg.bytesize} ".b + arg }.join)[0, 16]
    end

    # Parse the script's reply; +highest+ is set if the call was a repeat.
    def read(reply)
      return { highest: Integer(reply[1]), tracked: 0, acked: 0, failed: 0, rejected: [] } if reply[0].zero?

      rejected = reply[7].b.unpack("n*").map { |number| @anchors[number] }
      { highest: nil, tracked: reply[1], acked: reply[2], failed: reply[3], rejected: rejected }
    end
  end

  # The fixed bytes and numbers of a batch that was sent; each retry sends exactly these.
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

    # Return whether it is certain that no part was applied.
    def refused?
      @doubt.empty? && @replies.empty?
    end

    def fence(number)
      digest = @digest || @parts[number].digest
      return "" if @lane.empty?

      digest.empty? ? (@seq + number).to_s : "#{@seq + number}:#{digest}"
    end

    def applied
      found = Applied.new(0, 0, 0, [], false)
      @parts.each_index do |number|
        reply = @replies[number]
        found.repeated ||= !reply[:highest].nil?
        %i[tracked acked failed rejected].each { |field| found[field] += reply[field] }
      end
      found
    end
  end

  # Rows folded per anchor; at most 1024 anchors and 64 KiB of texts. Each method raises (code REFUSED) for
  # invalid input, and leaves the batch unchanged. +task+ is the source that tracks.
  class Batch
    Row = Struct.new(:anchor, :delta, :flags, :source, :why)
    private_constant :Row

    # The sent calls and their replies; while it is set, the batch accepts no rows.
    attr_accessor :sent

    def initialize(task = nil)
      @task = task && AckerRedis.check_name("task", task)
      @rows = {}
      @texts = 0
    end

    def size
      @rows.size
    end

    def empty?
      @rows.empty?
    end

    # Return whether each row begins a tree.
    def only_tracks?
      @rows.each_value.all? { |row| row.flags & TRACK != 0 }
    end

    # Return whether another row might not fit.
    def full?
      @rows.size >= MAX_ROWS || @texts > MAX_TEXTS - MAX_TEXT
    end

    def anchors
      @rows.keys
    end

    # Begin a tree, with the source's id for it and the ids of all its first messages.
    def track(anchor, source_id, emitted)
      needs_task
      text = AckerRedis.check_text("source id", source_id, 1)
      if AckerRedis.check_anchor(anchor) > ANCHOR_MAX
        AckerRedis.refuse("anchor #{anchor} is in a block; this client tracks no blocks")
      end
      if @rows[anchor] && @rows[anchor].flags & TRACK != 0
        AckerRedis.refuse("anchor #{anchor} is tracked twice; draw a new anchor for each attempt")
      end
      fold(anchor, AckerRedis.xor_ids(emitted), TRACK, text).source = text
      self
    end

    # Ack a processed message; +emitted+ are the ids of all messages that it caused.
    def ack(anchor, tuple, emitted = [])
      fold(anchor, AckerRedis.whole(tuple, emitted), 0, EMPTY)
      self
    end

    # Fail a tree. With +tuple+ and +emitted+ the message counts as processed.
    def fail(anchor, why = "", tuple = nil, emitted = [])
      add(anchor, tuple.nil? ? AckerRedis.xor_ids(emitted) : AckerRedis.whole(tuple, emitted), FAIL, why)
    end

    # Reset the timeout of a tree; for a tree in a block, that of the whole block.
    def touch(anchor)
      add(anchor, 0, TOUCH)
    end

    # Fold in a whole row: the delta of a message, and FAIL or TOUCH.
    def add(anchor, delta, flags = 0, why = "")
      AckerRedis.check_delta(delta)
      text = flags & FAIL == 0 ? EMPTY : AckerRedis.check_text("why", why, 0)
      text = EMPTY unless (@rows[anchor]&.why || EMPTY).empty? # the first non-empty why wins
      row = fold(anchor, delta, flags, text)
      row.why = text unless text.empty?
      self
    end

    # Return the calls to send: the loose rows of each shard, then those of trees in blocks.
    def parts(shards)
      loose, in_blocks = @rows.values.partition { |row| row.anchor <= ANCHOR_MAX }
      parts = loose.group_by { |row| row.anchor % shards }.map { |shard, rows| pack_loose(shard, rows) }
      blocks = in_blocks.group_by { |row| row.anchor >> 12 & BLOCK_MAX }
      blocks.group_by { |number, _| number % shards }.each do |shard, its|
        # The limits of a batch imply the other limits of a call.
        its.each_slice(MAX_BLOCKS) do |some|
          parts << Part.new("apply_blocks", shard, some.flat_map { |number, rows| pack_block(number, rows) })
        end
      end
      parts
    end

    private

    def needs_task
      AckerRedis.refuse("a TRACK row needs a source: use Batch.new(task)") unless @task
    end

    def room(rows, texts)
      AckerRedis.refuse("this batch was already sent; add new rows to a new batch") if @sent
      return if @rows.size + rows <= MAX_ROWS && @texts + texts <= MAX_TEXTS

      AckerRedis.refuse("a batch has at most #{MAX_ROWS} rows and #{MAX_TEXTS} bytes of texts; apply this one " \
                        "and begin another")
    end

    def fold(anchor, delta, flags, text)
      row = @rows[AckerRedis.check_anchor(anchor)]
      room(row ? 0 : 1, text.bytesize)
      row ||= @rows[anchor] = Row.new(anchor, 0, 0, EMPTY, EMPTY)
      @texts += text.bytesize
      # Flags first: an interruption here must not leave the delta of a failed message without FAIL.
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

    # Return the seven arguments of a block that another client has tracked.
    def pack_block(number, rows)
      rows = rows.sort_by(&:anchor)
      changed = rows.reject { |row| row.delta.zero? }
      flags = rows.any? { |row| row.flags & TOUCH != 0 } ? TOUCH : 0
      failed = rows.select { |row| row.flags & FAIL != 0 }
      failed = failed.map { |row| [row.anchor & 4095, row.why.bytesize].pack("nC") + row.why }.join
      slots = changed.map { |row| row.anchor & 4095 }.pack("n*")
      [[flags].pack("C"), [number].pack("Q>"), EMPTY, EMPTY, slots, changed.map(&:delta).pack("Q>*"), failed]
    end
  end

  # Messages that are processed together, usually one, and the messages that they caused. Client#process
  # creates it. Any thread may use it; a forked child must not use it.
  class Processing
    def initialize(client, texts)
      @client = client
      @inputs = texts.map { |text| AckerRedis.parse_message(text) }
      pairs = @inputs.flat_map(&:to_a)
      AckerRedis.refuse("a message is given twice; its rows would cancel") if pairs.uniq.size != pairs.size
      # For each input, by anchor: the XOR of the edge ids of the messages that it caused.
      @caused = @inputs.map { Hash.new(0) }
      @keys = {}
      @state = :open
      @mutex = Mutex.new
      @pid = Process.pid
    end

    # Return the id, a text, for one message that all inputs caused, or only the inputs at these places;
    # "" for an unanchored message. +edge+ names the edge that the message travels on. +key+ derives the id
    # from the key and these inputs: when they are processed again, the message has the same id. Each
    # message of a Processing needs a different key.
    def emit(places = nil, key: nil, edge: nil)
      places = check_places(places)
      key = AckerRedis.check_key(key)
      check_open
      anchored = places.reject { |place| @inputs[place].empty? }
      ids = @client.maker(key && anchored.any?) # may read the configuration: not under the mutex
      code = ids.code(edge)
      @mutex.synchronize do
        check_open
        edges, child = ids.child(@inputs.values_at(*anchored), key)
        claim(key)
        # Add the edges to the rows before the caller gets the id.
        give(anchored, edges, code)
        AckerRedis.format_message(child.transform_values { |id| id | code })
      end
    end

    # Ack the inputs. Emit before the ack.
    def ack
      @client.add(take(:acked) { rows(0, true) })
    end

    # Fail the trees of the inputs. After an ack the row has only FAIL, not the deltas again.
    def fail(why = "")
      @client.add(take(:failed) { |was| rows(FAIL, was == :open, AckerRedis.clip(why)) })
    end

    # Reset the timeout of the trees of the inputs.
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

    # A message emitted in a child would be missing in the parent's row: the tree could be acked falsely.
    def check_process
      return true if @pid == Process.pid

      raise Error.new("CLOSED", "this message was begun before the fork: only the parent process may emit, ack " \
                                "or touch it; fork first, or pass the message's id to the child")
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

    def check_places(places)
      places = places.nil? ? (0...@inputs.size).to_a : Array(places)
      AckerRedis.refuse("an input is given twice") if places.uniq.size != places.size
      places.each do |place|
        unless place.is_a?(Integer) && place.between?(0, @inputs.size - 1)
          AckerRedis.refuse("there is no input #{place.inspect}; inputs are numbered from 0")
        end
      end
    end

    # Refuse a key that was used before: equal ids would cancel in the checksum.
    def claim(key)
      return if key.nil?

      if @keys.key?(key)
        AckerRedis.refuse("key #{key.inspect} was already used for another message; give each child its own")
      end
      @keys[key] = true
    end

    # Add an edge id to each input. In each tree, that of the input with the least id has the code.
    def give(places, edges, code)
      carrier = {} # of each tree, the place of that input
      places.each do |place|
        @inputs[place].each do |anchor, id|
          carrier[anchor] = place if !carrier.key?(anchor) || id < @inputs[carrier[anchor]][anchor]
        end
      end
      places.zip(edges) do |place, edge|
        @inputs[place].each_key do |anchor|
          @caused[place][anchor] ^= carrier[anchor] == place ? edge | code : edge
        end
      end
    end

    def rows(flags, whole, why = "")
      deltas = Hash.new(0)
      @inputs.zip(@caused) do |ids, caused|
        ids.each { |anchor, id| deltas[anchor] ^= whole ? id ^ caused[anchor] : 0 }
      end
      deltas.map { |anchor, delta| [anchor, delta, flags, why] }
    end
  end
end
