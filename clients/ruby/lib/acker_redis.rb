# frozen_string_literal: true

# A client of acker-redis for Ruby: track tuple trees, ack and fail messages, read the verdicts. See
# README.md; lua/README.md of the project describes the wire protocol and retries.

require "json"
require "monitor"
require "redis"
require_relative "acker_redis/batch"
require_relative "acker_redis/id_maker"

module AckerRedis
  # A tree that was tracked: send one message with each of +ids+, unless the tree is +rejected+.
  Tree = Struct.new(:anchor, :ids, :rejected)
  # Verdict on one tree: +verdict+ ack, nack or touch; +reason+ completed, failed, expired, overflow,
  # conflict or reset. For a tree in a block, +source_id+ is the block's label. Of a tree that expired:
  # +cause+ is idle (no row came for long enough) or deadline; +residual+ is the XOR of the ids of its
  # outstanding messages, 0 if it is unknown; +idle_ms+ is the time since its last row, or, in a block, since
  # the last row of the block; +edges+ are the names of the edges with an odd number of messages outstanding.
  # Otherwise they are "", 0, 0 and [].
  Outcome = Struct.new(:verdict, :reason, :anchor, :source_id, :why, :age_ms, :cause, :residual, :idle_ms, :edges)
  # An entry of a task's stream: outcomes of one call.
  Entry = Struct.new(:shard, :id, :outcomes)
  # The configuration of a namespace; +fence_ms+ is how long a fence holds.
  Config = Struct.new(:shards, :fence_ms, :ids)
  private_constant :Config

  # A client of one namespace. +redis+ is a Redis of the redis gem: one server, sentinels, or a cluster.
  # Threads may share a client: one of them sends at a time. A forked child starts with a new lane and
  # a new connection.
  class Client
    FIRST_PAUSE = 0.05
    LONGEST_PAUSE = 0.5
    # Seconds until the next attempt to read edges and salt.
    IDS_RETRY = 2.0
    # From acker_redis/protocol/codes.py, by python -m proof.spec
    # Transient states: start-up, failover, a migrating slot, a long script, a full disk.
    PASSING = /\A(ERR\ max\ number\ of\ clients\ reached|
                  MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF)\b/x.freeze
    # Refusals that may pass: memory is freed, a password or a right changes.
    PATIENT = /\A(OOM|NOAUTH|WRONGPASS|NOPERM)\b/.freeze
    # Only a new connection can succeed, perhaps to another master.
    DEMOTED = /\A(LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS)\b/.freeze

    # The lack of a right to a single command of a script: commands before it may have run.
    NO_RIGHT_IN_SCRIPT = /The user executing the script can't |ACL failure in script: /.freeze
    # Prefix of Redis 6.2 before the error of a command inside a script.
    IN_SCRIPT = /\A(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )/m.freeze
    SCRIPTS = %w[apply apply_blocks status take].to_h do |name|
      source = File.binread(File.expand_path("../lua/#{name}.lua", __dir__)).freeze
      [name, [source, Digest::SHA1.hexdigest(source).freeze].freeze]
    end.freeze
    TLS_ERRORS = defined?(OpenSSL::SSL::SSLError) ? [OpenSSL::SSL::SSLError].freeze : [].freeze
    private_constant :FIRST_PAUSE, :LONGEST_PAUSE, :IDS_RETRY, :PASSING, :PATIENT, :NO_RIGHT_IN_SCRIPT, :IN_SCRIPT,
                     :SCRIPTS, :TLS_ERRORS

    # +retry_for+ is for how many seconds a batch is retried that got no reply, or that was refused
    # because too many verdicts wait. +linger+ is for how many seconds rows wait for others; there is no
    # timer, a later call sends them. +on_given_up+ is called with the error and the anchors of each
    # batch of rows that was given up; that error is also raised.
    def initialize(redis, namespace, retry_for: 10.0, linger: 0.002, &on_given_up)
      @redis = redis
      @namespace = AckerRedis.check_name("namespace", namespace)
      @retry_for = retry_for
      @linger = linger
      @on_given_up = on_given_up
      @monitor = Monitor.new
      start
    end

    # Return the IdMaker of the namespace; the first call reads the configuration.
    def ids
      known(now + @retry_for).ids
    end

    # Return what makes the ids of a message's children. If the configuration is not known, it is read once, and
    # while Redis does not answer, ids are made that are right in any namespace. Derived ids wait for the +salt+.
    def maker(salt)
      begun = now
      known = @config&.ids
      return known || ids if known || salt
      return IdMaker.new([], nil) if @last_ids.nil? && @ids_due && begun < @ids_due

      @monitor.synchronize do
        check_process
        config.ids
      end
    rescue Error => e
      raise if salt || (@last_ids.nil? && e.code != "UNAVAILABLE")

      @last_ids || unknown(begun, e)
    end

    # Begin a tree of +emit+ first messages, and wait until that is applied. +edge+ names the edge that they
    # travel on. Returns a Tree.
    def track(task, source_id, emit = 1, edge: nil)
      unless emit.is_a?(Integer) && emit >= 0
        AckerRedis.refuse("a tree has 0 or more first messages, not #{emit.inspect}")
      end
      batch = Batch.new(task)
      AckerRedis.check_text("source id", source_id, 1)
      deadline = now + @retry_for
      ids = known(deadline).ids.draw(emit, edge: edge)
      anchor = AckerRedis.new_anchor
      applied = apply_until(batch.track(anchor, source_id, ids), deadline)
      Tree.new(anchor, ids.map { |id| "#{anchor}:#{id}" }, applied.rejected.any?)
    end

    # Begin to process messages, given by their ids: one, or several together for a join. With a block,
    # the message is acked at the end of the block, and failed if the block raises, unless the block has
    # already acked or failed it. If the block is left by break, return or throw (as Timeout.timeout of
    # Ruby 3.1 does), the message is neither acked nor failed, and its trees expire.
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

    # Add the whole rows of a Processing, [[anchor, delta, flags, why], ..]. They are sent when a batch is full,
    # when they have lingered, and by flush. The call that sends a batch raises its error.
    def add(rows)
      @monitor.synchronize do
        check_process
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

    # Wait until all rows are applied. Raises the error of the first batch that was given up, including a
    # batch with rows of this thread that another thread has sent.
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

    # Apply a batch that the caller made, and wait. Returns Applied. After UNAVAILABLE or BACKLOG the same
    # batch may be applied again, but only before another one is applied.
    def apply(batch)
      apply_until(batch, now + @retry_for)
    end

    # Yield each waiting Outcome of a task, until none is left. An entry is taken after all its outcomes
    # were handled; other entries are read again later.
    def each_outcome(task)
      return enum_for(:each_outcome, task) unless block_given?

      until (entries = read(task)).empty?
        entries.each do |entry|
          entry.outcomes.each { |outcome| yield outcome }
          take(task, [entry])
        end
      end
    end

    # Return waiting entries, up to +count+ a shard, the oldest first. Entries stay until they are taken.
    def read(task, count = MAX_TAKE)
      AckerRedis.check_name("task", task)
      @monitor.synchronize do
        check_process
        # The number of shards may have changed. The stream of a removed shard reads as empty.
        shards = ask { |redis| redis.hget("#{prefix(0)}:meta", "shards") }
        shards = shards ? shards_of(shards) : config.shards
        (0...shards).flat_map do |shard|
          found = ask { |redis| redis.xrange("#{prefix(shard)}:outcomes:#{task}", "-", "+", count: count) }
          found.map { |id, fields| entry(shard, id, fields) }
        end
      end
    end

    # Delete entries that were handled; return the number of verdicts in them.
    def take(task, entries)
      AckerRedis.check_name("task", task)
      @monitor.synchronize do
        check_process
        entries.group_by(&:shard).sum do |shard, its|
          ids = its.map(&:id)
          taken = 0
          until ids.empty?
            _, verdicts, _, looked = run("take", shard, [task, *ids.first(MAX_TAKE)])
            taken += verdicts
            ids = ids.drop(looked)
          end
          taken
        end
      end
    end

    private

    def unknown(begun, error)
      unless @ids_due
        warn "acker-redis: #{@namespace}: messages that are emitted now carry no edge, because edges and salt could " \
             "not be read; a verdict cannot tell on which edge one is lost: #{error.message}"
      end
      @ids_due = now + [IDS_RETRY, 10 * (now - begun)].max
      IdMaker.new([], nil)
    end

    # Start without rows, under a new lane.
    def start
      @pid = Process.pid
      @queue = []
      @unlisted ||= {} # edges that were logged
      @threads = {}.compare_by_identity # of each batch, the threads with rows in it
      @owed = :"acker_redis_#{object_id}"
      @since = 0.0
      @config = nil
      new_lane
    end

    def new_lane
      @lane = SecureRandom.hex(16)
      @seq = 0
    end

    # After a fork the waiting rows, the lane and the connection belong to the parent.
    def check_process
      return if @pid == Process.pid

      start
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
      nil # it was failed before, or its trees expire
    end

    def apply_until(batch, deadline)
      @monitor.synchronize do
        check_process
        deliver(batch, deadline)
      end
    end

    # Send all waiting batches. A batch stays in the queue until it is answered or given up: after an
    # interruption the next call sends it again, under the same number.
    def send_queue
      first = nil
      while (batch = @queue.first)
        begin
          deliver(batch, now + @retry_for)
        rescue Error => e
          first ||= e
          @queue.shift
          # The sending thread raises the error now, each other thread at its next flush.
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

    # Return the configuration; read it if it is unknown, with retries like those of a batch.
    def known(deadline)
      config = @config # another thread may set it to nil
      return config if config && @pid == Process.pid

      @monitor.synchronize do
        check_process
        pause = FIRST_PAUSE
        begin
          self.config
        rescue Error => e
          raise unless e.code == "UNAVAILABLE"

          pause = wait_for_retry(pause, e, deadline)
          retry
        end
      end
    end

    # Apply a batch; retry until it is answered, or until a retry is no longer allowed.
    def deliver(batch, deadline)
      pause = FIRST_PAUSE
      refused_by = nil
      begin
        attempt(batch)
      rescue Error => e
        refused_by = repack(batch, e, refused_by) if %w[SHARD NAMESPACE].include?(e.code)
        new_lane if %w[LANE CONFLICT].include?(e.code) # the old lane is not used again
        # A password that was never right does not pass. Trees to be tracked do not wait for memory: they would
        # hold up rows that free some.
        passes = e.may_pass? && batch.sent && !(e.full? && batch.only_tracks?)
        raise unless passes || %w[UNAVAILABLE BACKLOG SHARD NAMESPACE].include?(e.code)

        pause = wait_for_retry(pause, e, deadline)
        retry
      end
    end

    # Sleep before a retry, and return the next pause; raise the error if no time is left.
    def wait_for_retry(pause, error, deadline)
      wait = pause * (0.5 + rand / 2)
      raise error if now + wait >= deadline

      sleep(wait)
      [2 * pause, LONGEST_PAUSE].min
    end

    # Let a batch be packed again for the current number of shards. Returns the number that it was
    # packed for. The same number a second time is a final refusal, unless the namespace is resharding.
    def repack(batch, error, refused_by)
      @config = nil
      sent = batch.sent
      raise error if sent.nil? || (sent.refused? && sent.shards == refused_by && !@reshard)

      unless sent.refused?
        raise Error.new(error.code, "#{error.message}. A part of this batch may have been applied before, so the " \
                                    "rest cannot be sent to other shards: give it up. Its trees expire; track " \
                                    "those again that get no verdict")
      end
      batch.sent = nil
      sent.shards
    end

    def attempt(batch)
      return Applied.new(0, 0, 0, [], false) if batch.empty?

      # The current configuration limits how long the fence holds.
      current = batch.sent ? read_config : config
      sent = batch.sent ||= seal(batch, current.shards)
      sent.fence_ms = [sent.fence_ms, current.fence_ms].min
      sent.parts.each_index { |number| sent.replies[number] ||= call(sent, number) }
      sent.applied
    end

    def seal(batch, shards)
      parts = batch.parts(shards)
      first = @seq + 1
      @seq += parts.size
      Sent.new(@lane, first, shards, parts)
    end

    # Only for the project's test cases: one attempt, under a given lane.
    def apply_as(batch, lane, seq, digest)
      return attempt(batch) if batch.empty?

      shards = config.shards
      batch.sent = Sent.new(lane, seq, shards, batch.parts(shards), digest)
      sent = batch.sent
      sent.parts.each_index { |number| sent.replies[number] = call(sent, number) }
      sent.applied
    end

    # Send one call once; raise LATE if its fence may have expired.
    def call(sent, number)
      part = sent.parts[number]
      first = sent.times[number] ||= now
      if now > first + sent.fence_ms / 1000.0
        raise Error.new("LATE", "this batch was first sent too long ago to be sent again: its fence may have " \
                                "expired; let its trees expire")
      end
      again = sent.doubt.key?(number)
      sent.doubt[number] = true
      begin
        reply = part.read(run(part.script, part.shard, [sent.lane, sent.fence(number), *part.argv]))
      rescue Error => e
        certain = e.code == "REDIS" ? e.may_pass? : e.code != "UNAVAILABLE"
        sent.doubt.delete(number) if certain && !again
        raise
      end
      return reply unless reply[:highest] && reply[:highest] > sent.seq + number

      raise Error.new("LANE", "lane #{sent.lane} is at #{reply[:highest]}, this batch is #{sent.seq + number}: a " \
                              "later batch, or another process, has used the lane; this batch is not applied again")
    end

    def config
      @config || read_config
    end

    def read_config
      meta = run("status", 0, [])[5].each_slice(2).to_h
      @reshard = !meta["reshard"].to_s.empty?
      raise tampered unless meta["salt"].to_s.match?(/\A[0-9a-f]{32}\z/) &&
                            meta["buckets"].to_s.match?(/\A[1-9][0-9]?\z/) &&
                            meta["buckets"].to_i.between?(MIN_BUCKETS, MAX_BUCKETS) &&
                            meta["tick_ms"].to_s.match?(/\A[1-9][0-9]{0,12}\z/)

      ids = IdMaker.new(meta["edges"].to_s.split(","), meta["salt"], @unlisted)
      fence_ms = (Integer(meta["buckets"]) - 1) * Integer(meta["tick_ms"])
      @last_ids = ids
      @config = Config.new(shards_of(meta["shards"]), fence_ms, ids).freeze
    rescue TypeError, ArgumentError
      raise tampered
    end

    # Return a number of shards that Redis holds: a power of two up to MAX_SHARDS.
    def shards_of(text)
      shards = text.to_s.match?(/\A[1-9][0-9]{0,3}\z/) ? Integer(text) : 0
      raise tampered unless shards.between?(1, MAX_SHARDS) && (shards & (shards - 1)).zero?

      shards
    end

    def tampered
      Error.new("SCHEMA", "#{prefix(0)}:meta has been tampered with")
    end

    # Call a script once (the library may retry the command). After UNAVAILABLE the script may have run.
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
        return Error.new(ours[1], ours[2])
      end
      @redis.close if words.match?(DEMOTED)
      if words.match?(PASSING)
        return Error.new("UNAVAILABLE", "Redis did not answer: #{words}; is it running and reachable?")
      end
      if words.start_with?("OOM")
        full = "Redis is at maxmemory and refused the call; nothing was changed. Raise maxmemory, lower high_water, " \
               "or let the sources take their outcomes"
        return Error.new("REDIS", full, :full)
      end
      passes = :refused if words.match?(PATIENT) && !words.match?(NO_RIGHT_IN_SCRIPT)
      Error.new("REDIS", "Redis refused the call: #{words}", passes)
    end

    def entry(shard, id, fields)
      fields = fields.transform_values { |value| value.dup.force_encoding("UTF-8") }
      outcomes = fields.key?("block") ? block_outcomes(fields) : loose_outcomes(fields)
      return Entry.new(shard, id, outcomes) if outcomes.size == fields["n"].to_i

      raise malformed("entry #{id} holds #{outcomes.size} verdicts, not #{fields['n'].inspect}")
    end

    def malformed(words)
      Error.new("SCHEMA", "#{words}: another version wrote it, or it was tampered with")
    end

    def loose_outcomes(fields)
      verdict, reason = fields.values_at("verdict", "reason")
      JSON.parse(fields["rows"]).map do |anchor, source_id, age_ms, *more|
        # Without a why, but with cause, residual and idle time, if the tree expired.
        more.unshift("") if reason == "expired"
        outcome(verdict, reason, anchor.to_i(16), source_id, age_ms, *more)
      end
    end

    # +residual+ is in hex.
    def outcome(verdict, reason, anchor, source_id, age_ms, why, cause = "", residual = "0", idle_ms = 0)
      residual = residual.to_i(16)
      edges = residual.zero? ? [] : config.ids.edges_of(residual)
      Outcome.new(verdict, reason, anchor, source_id, why, age_ms, cause, residual, idle_ms, edges)
    end

    # Return the outcomes of a block's entry, one for each tree, by slot.
    def block_outcomes(fields)
      verdict, reason = fields.values_at("verdict", "reason")
      block = fields["block"].to_i(16)
      one = lambda do |slot, said, because, why = "", *more|
        anchor = AckerRedis.block_anchor(block, slot)
        outcome(said, because, anchor, fields["label"], Integer(fields["age"]), why, *more)
      end
      return JSON.parse(fields["rows"]).map { |slot, why| one.call(slot, verdict, reason, why) } if fields["rows"]

      failed = fields["failed"].to_s.empty? ? [] : bitmap(fields, "failed")
      present = fields.key?("present") ? bitmap(fields, "present") : (0...fields["slots"].to_i).to_a
      residuals = verdict == "mixed" ? residuals_of(fields) : {}
      (present - failed).map do |slot|
        next one.call(slot, verdict, reason) if verdict != "mixed"
        next one.call(slot, "ack", "completed") unless residuals.key?(slot)

        one.call(slot, "nack", "expired", "", fields["cause"], residuals[slot], Integer(fields["idle"]))
      end
    end

    # Return the residuals of an expired block, in hex, by slot.
    def residuals_of(fields)
      nacked = bitmap(fields, "nacked")
      residuals = fields["residuals"].to_s
      unless residuals.size == 16 * nacked.size && residuals.match?(/\A[0-9a-f]*\z/)
        raise malformed("#{nacked.size} trees expired, with residuals #{residuals[0, 40].inspect}")
      end
      nacked.zip(residuals.scan(/.{16}/)).to_h
    end

    # Return the slots of a bitmap in hex, in order.
    def bitmap(fields, name)
      hex, slots = fields.values_at(name, "slots")
      found = AckerRedis.slots_of([hex].pack("H*"), slots.to_i) if hex.to_s.match?(/\A(?:[0-9a-f]{2})+\z/)
      found || raise(malformed("bitmap #{name} of a block of #{slots} slots is #{hex.to_s[0, 40].inspect}"))
    end
  end
end
