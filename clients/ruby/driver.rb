# frozen_string_literal: true

# Driver of this client for tests/languages; clients/DRIVER.md describes the requests.

require_relative "lib/acker_redis"

$stdin.set_encoding("UTF-8")
$stdout.set_encoding("UTF-8")

# Answers requests, one at a time.
class Driver
  def connect(nodes:, cluster:, timeout_ms:, **)
    @redis&.close
    urls = nodes.map { |node| "redis://#{node}" }
    settings = { timeout: timeout_ms / 1000.0 }
    @redis = cluster ? cluster_of(urls, settings) : Redis.new(url: urls.first, **settings)
    {}
  end

  def begin(namespace:, retry_ms:, linger_ms:)
    @client = AckerRedis::Client.new(@redis, namespace, retry_for: retry_ms / 1000.0, linger: linger_ms / 1000.0)
    {}
  end

  def apply(task:, producer:, seq:, digest:, rows:)
    batch = AckerRedis::Batch.new(task.empty? ? nil : task)
    rows.each { |row| fold(batch, *row.first) }
    found = @client.send(:apply_as, batch, producer, seq.to_i, digest)
    found.to_h.merge(rejected: found.rejected.map(&:to_s))
  end

  def read(task:)
    said(@client.read(task))
  end

  def take(task:)
    entries = @client.read(task)
    @client.take(task, entries)
    said(entries)
  end

  def track(task:, source_id:, emit:, edge: "")
    { emitted: @client.track(task, source_id, emit, edge: edge).ids }
  end

  def work(inputs:, emit:, end:, why:, flush:, edges: [], keys: [])
    ending = binding.local_variable_get(:end)
    processing = @client.process(*inputs)
    emitted = emit.each_with_index.map { |places, n| processing.emit(places, key: keys[n], edge: edges[n]) }
    case ending
    when "ack" then processing.ack
    when "fail" then processing.fail(why)
    when "touch" then processing.touch
    when "late"
      processing.ack
      processing.emit([0])
    end
    @client.flush if flush
    { emitted: emitted }
  end

  def flush
    @client.flush
    {}
  end

  # With one lane: the threads of a client take turns.
  def bench(rows:, batch:, trees:, **)
    anchors = AckerRedis.new_ids(trees, AckerRedis::ANCHOR_MAX)
    anchors.each_slice(batch) do |some|
      tracking = AckerRedis::Batch.new("bench")
      some.each { |anchor| tracking.track(anchor, "bench", AckerRedis.new_ids(1)) }
      @client.apply(tracking)
    end
    tuples, edges = Array.new(2) { AckerRedis.new_ids(rows) }
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    (0...rows).each_slice(batch) do |some|
      made = AckerRedis::Batch.new
      some.each { |row| made.ack(anchors[row % trees], tuples[row], [edges[row]]) }
      @client.apply(made)
    end
    { rows: rows, seconds: Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun }
  end

  private

  def cluster_of(urls, settings)
    return Redis.new(cluster: urls, **settings) if Redis::VERSION < "5"

    require "redis-clustering"
    Redis::Cluster.new(nodes: urls, **settings)
  end

  def fold(batch, verb, fields)
    anchor = Integer(fields["anchor"], 10) if fields["anchor"]
    tuple = fields["tuple"] && Integer(fields["tuple"], 10)
    emitted = (fields["emitted"] || []).map { |id| Integer(id, 10) }
    case verb
    when "track" then batch.track(anchor, fields["source_id"], emitted)
    when "ack" then batch.ack(anchor, tuple, emitted)
    when "fail" then batch.fail(anchor, fields["why"], tuple, emitted)
    when "touch" then batch.touch(anchor)
    else raise ArgumentError, "unknown row: #{verb}"
    end
  end

  def said(entries)
    outcomes = entries.flat_map(&:outcomes).map do |o|
      residual = o.cause.empty? ? "" : format("%016x", o.residual)
      [o.verdict, o.reason, o.anchor.to_s, o.source_id, o.why, o.age_ms, o.cause, residual, o.idle_ms, o.edges]
    end
    { outcomes: outcomes }
  end
end

OPS = %w[connect begin apply read take track work flush bench].freeze
driver = Driver.new
$stdin.each_line do |line|
  request = JSON.parse(line)
  op = request.delete("op")
  begin
    raise ArgumentError, "unknown op: #{op}" unless OPS.include?(op)

    answer = driver.public_send(op, **request.transform_keys(&:to_sym))
  rescue AckerRedis::Error => e
    answer = { error: e.code, message: e.message }
  rescue StandardError => e
    answer = { error: "DRIVER", message: e.full_message(highlight: false) }
  end
  $stdout.puts(JSON.generate(answer))
  $stdout.flush
end
