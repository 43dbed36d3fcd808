# frozen_string_literal: true

# Track tuple trees, ack and fail messages, hear the verdicts: a client of acker-redis for Ruby. See
# README.md; how it is sent, and sent again, is told in lua/README.md of the project.

require "json"
require "monitor"
require "redis"
require_relative "acker_redis/batch"

module AckerRedis
  # A tree that has begun: send a message with each of +ids+, unless it is +rejected+.
  Tree = Struct.new(:anchor, :ids, :rejected)
  # Verdict on one tree: +verdict+ ack, nack or touch; +reason+ completed, failed, expired, overflow,
  # conflict or reset. Of a tree in a block, +source_id+ is the block's label.
  Outcome = Struct.new(:verdict, :reason, :anchor, :source_id, :why, :age_ms)
  # An entry of a task's stream: the outcomes that one call decided alike.
  Entry = Struct.new(:shard, :id, :outcomes)

  # One namespace. +redis+ is a Redis of the redis gem: one server, sentinels, or a cluster. Threads
  # may share a client: one of them sends at a time. A forked child begins anew.
  class Client
    # Entries that are read, and taken, at once, of a shard.
    MAX_ENTRIES = 64
    FIRST_PAUSE = 0.05
    LONGEST_PAUSE = 0.5
    # Error codes of states that pass: start-up, failover, a slot that moves, a long script.
    PASSING = /\A(LOADING|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|BUSY|NOREPLICAS|MOVED|ASK)\b/.freeze
    DEMOTED = /\A(READONLY|MASTERDOWN|NOREPLICAS|LOADING)\b/.freeze
    # What Redis 6.2 puts before an error that a command in a script has met.
    IN_SCRIPT = /\A(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )/m.freeze
    ADVICE = {
      "NAMESPACE" => "; create it (acker-redis create), or finish dropping it (acker-redis drop)",
      "SCHEMA" => "; use the version of acker-redis that wrote it",
      "SHARD" => "; the namespace was moved or created anew",
      "CONFLICT" => "; something in it changes from run to run, or the namespace was moved since",
      "BACKLOG" => "; its source has to take its outcomes",
    }.freeze
    SCRIPTS = %w[apply apply_blocks show status take].to_h do |name|
      source = File.binread(File.expand_path("../lua/#{name}.lua", __dir__)).freeze
      [name, [source, Digest::SHA1.hexdigest(source).freeze].freeze]
    end.freeze
    TLS_ERRORS = defined?(OpenSSL::SSL::SSLError) ? [OpenSSL::SSL::SSLError].freeze : [].freeze
    private_constant :FIRST_PAUSE, :LONGEST_PAUSE, :PASSING, :IN_SCRIPT, :ADVICE, :SCRIPTS, :TLS_ERRORS

    # +retry_for+: for how many seconds a batch is sent again that was not answered, or refused because
    # too many verdicts wait. +linger+: for how many seconds rows wait for others; there is no timer, a
    # later call sends them. +on_given_up+ is called with the error and the anchors of a batch of rows
    # that was given up, whose error is raised, too.
    def initialize(redis, namespace, retry_for: 10.0, linger: 0.002, &on_given_up)
      @redis = redis
      @namespace = AckerRedis.check_name("namespace", namespace)
      @retry_for = retry_for
      @linger = linger
      @on_given_up = on_given_up
      @monitor = Monitor.new
      begin_anew
    end

    # Begin a tree of so many first messages, and wait until that is applied.
    def track(task, source_id, emit = 1)
      unless emit.is_a?(Integer) && emit >= 0
        AckerRedis.refuse("a tree has 0 or more first messages, not #{emit.inspect}")
      end
      ids = AckerRedis.new_ids(emit)
      anchor = AckerRedis.new_anchor
      applied = apply(Batch.new(task).track(anchor, source_id, ids))
      Tree.new(anchor, ids.map { |id| "#{anchor}:#{id}" }, applied.rejected.any?)
    end

    # Begin a block of trees, and wait until that is applied; see Batch#track_block. Returns its
    # number. Raises REJECTED if it was nacked: emit nothing of it.
    def track_block(task, label, deltas, block: nil)
      batch = Batch.new(task)
      number = batch.track_block(label, deltas, block: block)
      applied = apply(batch)
      # Its reply was lost, and with it whether it was rejected. (All zero: it is complete.)
      gone = applied.repeated && deltas.any?(&:positive?) && !show(AckerRedis.block_anchor(number, 0))
      return number unless gone || applied.rejected_blocks.any?

      raise Error.new("REJECTED", "block #{label} of #{task} was nacked: too much is pending, or its last " \
                                  "life expires just now; its source is told so, emit nothing of it")
    end

    # Begin to process messages, given as texts: one, or several together for a join. With a block it
    # is acked at its end, and failed when it raises, unless one of both was said in it. Left by break,
    # return or throw (so ends Timeout.timeout of Ruby 3.1) it is neither, and expires.
    def process(*inputs)
      processing = Processing.new(self, inputs)
      return processing unless block_given?

      begin
        result = yield processing
      rescue Exception => e # rubocop:disable Lint/RescueException
        give_up(processing, e)
        raise
      end
      processing.ack if processing.open?
      result
    end

    # Take in whole rows, [[anchor, delta, flags, why], ..]. They are sent when a batch is full, when
    # they have lingered, and by flush; whoever sends a batch gets its error.
    def add(rows)
      @monitor.synchronize do
        check_process
        rows.each do |anchor, delta, flags, why|
          AckerRedis.check_row(anchor, delta, flags, why)
        end
        rows.each do |row|
          if @queue.empty? || @queue.last.sent || @queue.last.full?
            @queue << Batch.new
            @since = now
          end
          (@threads[@queue.last] ||= {})[Thread.current] = true
          @queue.last.add(*row)
        end
        send_queue if @queue.size > 1 || @queue.last&.full? || (@queue.any? && now - @since >= @linger)
      end
      nil
    end

    # Wait until all rows are applied; raises the error of the first batch that was given up, also of one
    # with rows of this thread that another thread has sent meanwhile.
    def flush
      @monitor.synchronize do
        check_process
        send_queue
        owed = Thread.current.thread_variable_get(@owed)
        Thread.current.thread_variable_set(@owed, nil)
        raise owed if owed
      end
      nil
    end
    alias close flush

    # Apply a batch of one's own, and wait. After UNAVAILABLE or BACKLOG the same batch may be applied
    # again, before another one is. Returns Applied.
    def apply(batch)
      @monitor.synchronize do
        check_process
        deliver(batch)
      end
    end

    # Each Outcome that waits for a task, until none is left. An entry is taken once all of it was
    # handled; what was not comes again.
    def each_outcome(task)
      return enum_for(:each_outcome, task) unless block_given?

      until (entries = read(task)).empty?
        entries.each do |entry|
          entry.outcomes.each { |outcome| yield outcome }
          take(task, [entry])
        end
      end
    end

    # Entries that wait, up to +count+ a shard, the oldest first; the same again until taken.
    def read(task, count = MAX_ENTRIES)
      AckerRedis.check_name("task", task)
      @monitor.synchronize do
        check_process
        # There may be other shards by now, and a stream that is no more is as empty as any.
        shards = ask { |redis| redis.hget("#{prefix(0)}:meta", "shards") }
        shards = shards ? Integer(shards) : config.first
        (0...shards).flat_map do |shard|
          found = ask { |redis| redis.xrange("#{prefix(shard)}:outcomes:#{task}", "-", "+", count: count) }
          found.map { |id, fields| entry(shard, id, fields) }
        end
      end
    end

    # Delete entries that were handled; returns how many verdicts they held.
    def take(task, entries)
      AckerRedis.check_name("task", task)
      @monitor.synchronize do
        check_process
        entries.group_by(&:shard).sum do |shard, its|
          ids = its.map(&:id)
          taken = 0
          until ids.empty?
            _, verdicts, _, looked = run("take", shard, [task, *ids.first(MAX_ENTRIES)])
            taken += verdicts
            ids = ids.drop(looked)
          end
          taken
        end
      end
    end

    # What is known of a tree: a Hash with :checksum, :failed, :task, :source_id (of one in a block its
    # label), :why; nil if it is not pending.
    def show(anchor)
      AckerRedis.check_anchor(anchor)
      @monitor.synchronize do
        check_process
        shards, = config
        _, age, record, *block = run("show", AckerRedis.shard_of(anchor, shards), [[anchor].pack("Q>")])
        next if record.nil?

        block.empty? ? tree(record.b, age) : tree_in_block(anchor & 4095, record.b, age, *block)
      end
    end

    private

    def begin_anew
      @pid = Process.pid
      @queue = []
      @threads = {}.compare_by_identity # of each batch there
      @owed = :"acker_redis_#{object_id}"
      @since = 0.0
      @config = nil
      new_lane
    end

    def new_lane
      @lane = SecureRandom.hex(16)
      @seq = 0
    end

    # What a parent has not sent is the parent's, its lane and its connection are, too.
    def check_process
      return if @pid == Process.pid

      begin_anew
      @redis.close
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def prefix(shard)
      "acker:{#{@namespace}:#{shard}}"
    end

    def give_up(processing, error)
      processing.fail(error)
    rescue Error
      nil # it was failed before; or it expires
    end

    # Send all that waits. A batch stays in front until it is answered or given up: whoever was
    # interrupted sends it again, under its number.
    def send_queue
      first = nil
      while (batch = @queue.first)
        begin
          deliver(batch)
        rescue Error => e
          first ||= e
          @queue.shift
          # Whoever sends is told at once, the others by their next flush.
          (@threads.delete(batch) || {}).each_key do |thread|
            next if thread == Thread.current || thread.thread_variable_get(@owed)

            thread.thread_variable_set(@owed, e)
          end
          @on_given_up&.call(e, batch.anchors)
        else
          @queue.shift
          @threads.delete(batch)
        end
      end
      raise first if first
    end

    # Apply a batch, again and again, until it is answered or may not be sent any more.
    def deliver(batch)
      deadline = now + @retry_for
      pause = FIRST_PAUSE
      refused_by = nil
      begin
        attempt(batch)
      rescue Error => e
        refused_by = pack_anew(batch, e, refused_by) if %w[SHARD NAMESPACE].include?(e.code)
        new_lane if %w[LANE CONFLICT].include?(e.code) # nobody goes on with it
        wait = pause * (0.5 + rand / 2)
        raise unless %w[UNAVAILABLE BACKLOG SHARD NAMESPACE].include?(e.code) && now + wait < deadline

        sleep(wait)
        pause = [2 * pause, LONGEST_PAUSE].min
        retry
      end
    end

    # Let a batch be packed once more, for the shards that there are by then. Returns how many there
    # were; as many again refuse it for good, unless the namespace moves just now.
    def pack_anew(batch, error, refused_by)
      @config = nil
      sent = batch.sent
      raise error if sent.nil? || (sent.refused? && sent.shards == refused_by && !@reshard)

      unless sent.refused?
        raise Error.new(error.code, "#{error.message}. Some of this batch may have been applied before that: " \
                                    "give it up. Its trees expire; what it tracks and has no verdict then, track anew")
      end
      batch.sent = nil
      sent.shards
    end

    def attempt(batch)
      return Applied.new(0, 0, 0, [], [], false) if batch.empty?

      # Its fence holds for as long as the namespace says now.
      shards, fence_ms = batch.sent ? read_config : config
      sent = batch.sent ||= seal(batch, shards)
      sent.fence_ms = [sent.fence_ms, fence_ms].min
      sent.parts.each_index { |number| sent.replies[number] ||= call(sent, number) }
      sent.applied
    end

    def seal(batch, shards)
      parts = batch.parts(shards)
      first = @seq + 1
      @seq += parts.size
      Sent.new(@lane, first, shards, parts)
    end

    # For the vectors of the project only: one attempt, under a given lane.
    def apply_as(batch, lane, seq, digest)
      return attempt(batch) if batch.empty?

      shards, = config
      batch.sent = Sent.new(lane, seq, shards, batch.parts(shards), digest)
      sent = batch.sent
      sent.parts.each_index { |number| sent.replies[number] = call(sent, number) }
      sent.applied
    end

    # One call, once, unless its fence may be gone.
    def call(sent, number)
      part = sent.parts[number]
      first = sent.times[number] ||= now
      if now > first + sent.fence_ms / 1000.0
        raise Error.new("LATE", "this batch was first sent too long ago to be sent again; let its trees expire")
      end
      again = sent.doubt.key?(number)
      sent.doubt[number] = true
      begin
        reply = part.read(run(part.script, part.shard, [sent.lane, sent.fence(number), *part.argv]))
      rescue Error => e
        sent.doubt.delete(number) unless again || e.code == "UNAVAILABLE" # it was refused, for sure
        raise
      end
      return reply unless reply[:highest] && reply[:highest] > sent.seq + number

      raise Error.new("LANE", "lane #{sent.lane} is at #{reply[:highest]}, this batch is #{sent.seq + number}: a " \
                              "later batch, or another process, has used the lane; it is not applied again")
    end

    # Shards, and for how many ms a fence holds.
    def config
      @config || read_config
    end

    def read_config
      meta = run("status", 0, [])[5].each_slice(2).to_h
      @reshard = !meta["reshard"].to_s.empty?
      @config = [Integer(meta["shards"]), (Integer(meta["buckets"]) - 1) * Integer(meta["tick_ms"])]
    rescue TypeError, ArgumentError
      raise Error.new("SCHEMA", "#{prefix(0)}:meta has been tampered with")
    end

    # Call a script once (but for what the library sends again). UNAVAILABLE: it may have run.
    def run(name, shard, argv)
      source, sha = SCRIPTS.fetch(name)
      keys = [prefix(shard), "#{prefix(shard)}:meta"]
      ask do |redis|
        redis.evalsha(sha, keys, argv)
      rescue Redis::CommandError => e
        raise unless e.message.start_with?("NOSCRIPT")

        redis.eval(source, keys, argv)
      end
    end

    def ask
      yield @redis
    rescue Redis::CommandError => e
      raise refused(e.message)
    rescue Redis::BaseError, SystemCallError, IOError, SocketError, *TLS_ERRORS => e
      raise Error.new("UNAVAILABLE", "Redis did not answer: #{e.message}; is it running and reachable?")
    end

    def refused(message)
      words = message.sub(IN_SCRIPT, "")
      if (ours = /\AACKER ([A-Z]+) (.*)/m.match(words))
        return Error.new(ours[1], "#{ours[2]}#{ADVICE[ours[1]]}")
      end
      if words.match?(PASSING)
        # The address may lead to another master by now; only a new connection finds out.
        @redis.close if words.match?(DEMOTED)
        return Error.new("UNAVAILABLE", "Redis did not answer: #{words}; is it running and reachable?")
      end
      if words.start_with?("OOM")
        return Error.new("REDIS", "Redis is at maxmemory and refused the call; nothing was changed. Raise " \
                                  "maxmemory, lower high_water, or let the sources take their outcomes")
      end
      Error.new("REDIS", "Redis refused the call: #{words}")
    end

    def entry(shard, id, fields)
      fields = fields.transform_values { |value| value.dup.force_encoding("UTF-8") }
      verdict, reason = fields.values_at("verdict", "reason")
      return Entry.new(shard, id, block_outcomes(verdict, reason, fields)) if fields.key?("block")

      outcomes = JSON.parse(fields["rows"]).map do |anchor, source_id, age_ms, why|
        Outcome.new(verdict, reason, anchor.to_i(16), source_id, why, age_ms)
      end
      Entry.new(shard, id, outcomes)
    end

    # Single verdicts of a block's entry, by slot.
    def block_outcomes(verdict, reason, fields)
      block = fields["block"].to_i(16)
      one = lambda do |slot, said, because, why = ""|
        Outcome.new(said, because, AckerRedis.block_anchor(block, slot), fields["label"], why, Integer(fields["age"]))
      end
      return JSON.parse(fields["rows"]).map { |slot, why| one.call(slot, verdict, reason, why) } if fields["rows"]

      failed, nacked = %w[failed nacked].map { |name| JSON.parse(fields[name] || "[]").to_h { |slot| [slot, true] } }
      (0...Integer(fields["slots"])).reject { |slot| failed[slot] }.map do |slot|
        next one.call(slot, verdict, reason) if verdict != "mixed"

        nacked[slot] ? one.call(slot, "nack", "expired") : one.call(slot, "ack", "completed")
      end
    end

    def tree(record, age)
      checksum, failed = record.unpack("Q>C")
      length = record.getbyte(15)
      task = record.byteslice(16, length)
      text = (record.byteslice(16 + length..) || "").force_encoding("UTF-8")
      { checksum: checksum, failed: failed & 1 == 1, task: task, age: age,
        source_id: task.empty? ? "" : text, why: task.empty? ? text : "" }
    end

    # Header: first seen (6), slots (2), digest (8), length of the task, task, label.
    def tree_in_block(slot, header, age, checksums, failed, why)
      length = header.getbyte(16)
      checksum = checksums.b.byteslice(8 * slot, 8).to_s
      return if checksum.empty?

      { checksum: checksum.unpack1("Q>"), failed: failed.map(&:to_i).include?(slot), age: age,
        task: header.byteslice(17, length), source_id: header.byteslice(17 + length..).force_encoding("UTF-8"),
        why: why.to_s.dup.force_encoding("UTF-8") }
    end
  end
end
