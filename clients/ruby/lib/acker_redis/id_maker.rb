# frozen_string_literal: true

# Ids of messages, without I/O. lua/README.md of the project specifies them (Ids).

module AckerRedis
  # Makes the ids of a namespace, random or derived; Client#ids returns it. An edge is a way on which
  # messages go from one step to the next. The id of a message on edge k of the namespace has bit 55 + k,
  # its code.
  class IdMaker
    MAX_UNLISTED = 1000
    private_constant :MAX_UNLISTED

    # Names of the edges, in the order of the configuration.
    attr_reader :edges

    # +unlisted+ remembers the edges that were logged. Without a salt the configuration of the namespace is not
    # known: ids have no code, which is right in any namespace.
    def initialize(edges, salt, unlisted = {})
      @edges = edges
      @salt = salt
      @unlisted = unlisted
      @low = edges.empty? && salt ? TUPLE_MAX : 2**EDGE_BIT - 1
    end

    # Return the bit of an edge; 0 for nil, "" and an unlisted edge, which is logged once.
    def code(edge)
      name = edge.to_s
      return 0 if name.empty? || @salt.nil?

      number = @edges.index(name)
      return 1 << EDGE_BIT + number if number

      unless @unlisted.key?(name) || @unlisted.size >= MAX_UNLISTED
        @unlisted[name] = true
        warn "acker-redis: the namespace does not list edge #{name.inspect} (it lists " \
             "#{@edges.empty? ? 'none' : @edges.join(', ')}): verdicts cannot name it"
      end
      0
    end

    # Return the edges with an odd number of messages outstanding, by the residual of a tree.
    def edges_of(residual)
      @edges.each_index.select { |k| residual[EDGE_BIT + k] == 1 }.map { |k| @edges[k] }
    end

    # Return +count+ distinct random ids, for messages on an edge. Their XOR is zero only if there are none.
    def draw(count, edge: nil)
      bit = code(edge)
      loop do
        ids = AckerRedis.new_ids(count, @low)
        return ids.map { |id| id | bit } if count.zero? || (ids.uniq.size == count && ids.reduce(:^) != 0)
      end
    end

    # Return an edge id for each input, and the ids of the message that these inputs caused, by anchor; all
    # without a code. With a key they depend only on the salt, the key and the inputs.
    def child(inputs, key = nil)
      (0..).each do |attempt|
        edges = key.nil? ? AckerRedis.new_ids(inputs.size, @low) : derived(inputs, key, attempt)
        ids = Hash.new(0)
        inputs.zip(edges) { |input, edge| input.each_key { |anchor| ids[anchor] ^= edge } }
        # Edges cancel with a probability of 2^-55 or less.
        return edges, AckerRedis.check_trees(ids) unless ids.value?(0)
      end
    end

    # Without the salt, which is secret.
    def inspect
      "#<#{self.class} edges=#{@edges.inspect}>"
    end

    private

    def derived(inputs, key, attempt)
      texts = inputs.map { |input| AckerRedis.format_message(input) }
      sorted = texts.sort
      texts.map { |own| hash_of("child", key, attempt.to_s, *sorted, own) >> 64 - @low.bit_length }
    end

    def hash_of(*parts)
      text = [@salt, *parts].map { |part| "#{part.bytesize}:".b + part.b }.join
      Digest::SHA256.digest(text).unpack1("Q>")
    end
  end
end
