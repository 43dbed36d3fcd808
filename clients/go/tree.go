package acker

import (
	"context"
	"encoding/binary"
	"sort"
	"strconv"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// Tree is a tree that has begun: its anchor, and the ids of its first messages as text. Send each
// message together with its id, for example in a header.
type Tree struct {
	Anchor   uint64
	Messages []string
}

// Track begins a tree with the given number of first messages, which travel on an Edge if one is
// given, and waits until it is applied. Send the messages after that. A tree without messages is
// complete immediately. Every attempt is a separate tree; the verdict contains sourceID.
//
// A source that does not know the number of messages in advance tracks one message and processes
// that message itself.
//
// After CodeRejected, emit none of the messages; the source receives a nack. After any other error
// the tree may exist: track again, and ignore verdicts of trees that you do not know.
func (c *Client) Track(
	ctx context.Context, task, sourceID string, messages int, options ...TrackOption,
) (Tree, error) {
	if err := checkName("task", task); err != nil {
		return Tree{}, err
	}
	if err := checkText("source id", sourceID, 1); err != nil {
		return Tree{}, err
	}
	if messages < 0 || messages > 65536 {
		return Tree{}, refused("a tree has 0 to 65536 first messages, not %d", messages)
	}
	var first emission
	for _, option := range options {
		option.toTrack(&first)
	}
	config, err := c.known(ctx)
	if err != nil {
		return Tree{}, err
	}
	tree, delta, err := newTree(messages, config.ids, config.ids.code(first.edge))
	if err != nil {
		return Tree{}, err
	}
	into, err := c.add(ctx, []change{{
		anchor: tree.Anchor, delta: delta, task: task, source: sourceID, awaited: true,
	}})
	if err != nil {
		return Tree{}, err
	}
	its := into[0]
	select {
	case <-its.done:
	case <-ctx.Done():
		return Tree{}, ended(ctx, "the tree was not tracked in time; it may still be tracked later")
	}
	if its.err != nil {
		return Tree{}, its.err
	}
	rejected := false
	for _, anchor := range its.applied.Rejected {
		rejected = rejected || anchor == tree.Anchor
	}
	if its.applied.Repeated && delta != 0 {
		// The first reply was lost, and it said whether the tree was rejected.
		pending, err := c.pending(ctx, tree.Anchor)
		if err != nil {
			return Tree{}, err
		}
		rejected = rejected || !pending
	}
	if rejected {
		return Tree{}, &Error{Code: CodeRejected, Words: "the tree was nacked, because too much is " +
			"pending: send none of its messages, and try again later"}
	}
	return tree, nil
}

// newTree draws the anchor of a tree and the ids of its first messages, and returns their XOR.
func newTree(messages int, ids *idMaker, code uint64) (Tree, uint64, error) {
	tree := Tree{Messages: make([]string, messages)}
	for {
		drawn, err := NewIDs(messages + 1)
		if err != nil {
			return Tree{}, 0, err
		}
		tree.Anchor = drawn[messages] & anchorMax
		first := drawn[:messages]
		for i := range first {
			first[i] &= ids.low()
		}
		// An id that is zero is invalid until it gets its code.
		if _, err = xorIDs(first); err != nil || tree.Anchor == 0 {
			continue // probability 2^-55
		}
		delta := uint64(0)
		for i := range first {
			first[i] |= code
			delta ^= first[i]
			tree.Messages[i] = formatMessage([]idIn{{tree.Anchor, first[i]}})
		}
		if delta != 0 || messages == 0 {
			return tree, delta, nil
		}
	}
}

// Block is a block of trees that has begun.
type Block struct {
	Number uint64
	Slots  int
}

// Anchor returns the anchor of the tree in a slot.
func (b Block) Anchor(slot int) uint64 { return 1<<62 | b.Number<<12 | uint64(slot) }

// TrackBlock begins a block of trees: deltas has for each tree the XOR of the ids of its first
// messages, which are sent after TrackBlock returns. The block's number is derived from the salt of
// the namespace, task and label, so use another label for each attempt. A label must not end in @ and
// a number, because labels of Spark do. TrackBlock is idempotent: when it is unknown whether the block
// was applied, call it again with the same arguments. It returns the errors of Track.
func (c *Client) TrackBlock(ctx context.Context, task, label string, deltas []uint64) (Block, error) {
	if err := checkName("task", task); err != nil {
		return Block{}, err
	}
	if err := checkBlock(label, deltas); err != nil {
		return Block{}, err
	}
	config, err := c.known(ctx)
	if err != nil {
		return Block{}, err
	}
	block := Block{config.ids.block(task, label), len(deltas)}
	batch, err := NewBatch(task)
	if err == nil {
		err = batch.TrackBlock(block.Number, label, deltas)
	}
	if err != nil {
		return Block{}, err
	}
	applied, err := c.Apply(ctx, batch)
	if err != nil {
		return Block{}, err
	}
	rejected := len(applied.RejectedBlocks) > 0
	if applied.Repeated && !rejected {
		for _, delta := range deltas {
			if delta == 0 {
				continue
			}
			pending, err := c.pending(ctx, block.Anchor(0))
			if err != nil {
				return Block{}, err
			}
			rejected = !pending
			break
		}
	}
	if rejected {
		return Block{}, &Error{Code: CodeRejected, Words: "block " + label + " was nacked: too much is " +
			"pending, or an earlier block of this number is expiring; do not emit its messages, and replay " +
			"it later under another label (a block above twice a shard's share of high_water never fits)"}
	}
	return block, nil
}

// pending reports whether a tree is pending, and not in the bucket that is expiring.
func (c *Client) pending(ctx context.Context, anchor uint64) (bool, error) {
	var wire [8]byte
	binary.BigEndian.PutUint64(wire[:], anchor)
	for again := false; ; again = true {
		config, err := c.configuration(ctx, c.deadline(), !again)
		if err != nil {
			return false, err
		}
		var reply []interface{}
		err = c.runUntil(ctx, c.deadline(), func() (err error) {
			reply, err = redis.Values(c.run("show", shardOf(anchor, config.shards), wire[:]))
			return err
		})
		if code := Code(err); !again && (code == "SHARD" || code == "NAMESPACE") {
			continue // it may be the configuration from before a reshard
		}
		if err != nil || len(reply) < 2 {
			return false, err // the reply about a tree that is not pending has only the time
		}
		age, err := redis.Int(reply[1], nil)
		return age < config.buckets, err
	}
}

// Processing is one message that a bolt processes, or several together for a join. It is safe for
// concurrent use. The trees of a message that is never acked nor failed expire.
type Processing struct {
	client *Client
	inputs [][]idIn

	mu    sync.Mutex
	rows  []idIn              // for each tree the XOR of the ids of its inputs and of their children
	keys  map[string]struct{} // that were used
	state string
}

// Process begins to process messages, given by their ids as text. An unanchored message has an empty
// text and no row.
func (c *Client) Process(messages ...string) (*Processing, error) {
	p := &Processing{client: c}
	seen := map[idIn]struct{}{}
	for _, text := range messages {
		ids, err := parseMessage(text)
		if err != nil {
			return nil, err
		}
		if len(messages) > 1 {
			for _, id := range ids {
				if _, twice := seen[id]; twice {
					return nil, refused("a message of tree %d is given twice; its rows would cancel",
						id.anchor)
				}
				seen[id] = struct{}{}
			}
		}
		p.inputs = append(p.inputs, ids)
		p.rows = append(p.rows, ids...)
	}
	p.rows = merged(p.rows)
	return p, nil
}

// Emit returns the id, as text, of a new message that all inputs caused. Send one message with it,
// before Ack. The id of a message with a Key needs the configuration of the namespace: if it is not
// known yet, Emit reads it from Redis, for up to RetryFor, or 10 s. Without a Key, and while Redis does
// not answer, the message has no edge.
func (p *Processing) Emit(options ...EmitOption) (string, error) {
	places := make([]int, len(p.inputs))
	for i := range places {
		places[i] = i
	}
	return p.EmitFrom(places, options...)
}

// EmitFrom does the same for some inputs, given by their places. Without places the message is
// unanchored and its text is empty.
func (p *Processing) EmitFrom(places []int, options ...EmitOption) (string, error) {
	var how emission
	for _, option := range options {
		option.toEmit(&how)
	}
	inputs, err := p.chosen(places)
	if err != nil {
		return "", err
	}
	maker, err := p.client.maker(how.key != nil && len(inputs) > 0)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(); err != nil {
		return "", err
	}
	if how.key != nil {
		if _, used := p.keys[*how.key]; used {
			return "", refused("key %q was already used for another message; give each child its own", *how.key)
		}
	}
	ids, err := child(inputs, how.key, maker)
	if err != nil {
		return "", err
	}
	if how.key != nil {
		if p.keys == nil {
			p.keys = map[string]struct{}{}
		}
		p.keys[*how.key] = struct{}{}
	}
	// Each input has an edge id, and one of them carries the code in each tree. The inputs are acked
	// together, so the row of a tree has all edge ids of the tree: their XOR is the child's id.
	code, at := maker.code(how.edge), 0
	for i := range ids {
		ids[i].tuple |= code
		for p.rows[at].anchor != ids[i].anchor {
			at++
		}
		p.rows[at].tuple ^= ids[i].tuple
	}
	return formatMessage(ids), nil
}

// chosen returns the inputs in these places that belong to a tree.
func (p *Processing) chosen(places []int) ([][]idIn, error) {
	inputs := make([][]idIn, 0, len(places))
	seen := make(map[int]struct{}, len(places))
	for _, place := range places {
		if place < 0 || place >= len(p.inputs) {
			return nil, refused("there is no input %d; inputs are numbered from 0", place)
		}
		if _, twice := seen[place]; twice {
			return nil, refused("input %d is given twice", place)
		}
		seen[place] = struct{}{}
		if len(p.inputs[place]) > 0 {
			inputs = append(inputs, p.inputs[place])
		}
	}
	return inputs, nil
}

// child returns the ids of a new message, without a code: in each tree the XOR of the edge ids of its
// inputs in that tree.
func child(inputs [][]idIn, key *string, maker *idMaker) ([]idIn, error) {
	for attempt := 0; ; attempt++ {
		var edges []uint64
		var err error
		if key != nil {
			edges = derived(inputs, *key, attempt, maker)
		} else if edges, err = maker.draw(len(inputs)); err != nil {
			return nil, err
		}
		var ids []idIn
		for i, input := range inputs {
			for _, id := range input {
				ids = append(ids, idIn{id.anchor, edges[i]})
			}
		}
		ids = merged(ids)
		if len(ids) > maxTrees {
			return nil, refused("a message belongs to at most %d trees, not %d; emit several, each "+
				"anchored to some of the inputs", maxTrees, len(ids))
		}
		if sound(ids) {
			return ids, nil
		}
	}
}

// sound reports whether no id is zero. Edge ids cancel with a probability of 2^-55.
func sound(ids []idIn) bool {
	for _, id := range ids {
		if id.tuple == 0 {
			return false
		}
	}
	return true
}

// derived returns an edge id for each input, derived from all inputs and the key.
func derived(inputs [][]idIn, key string, attempt int, maker *idMaker) []uint64 {
	texts := make([]string, len(inputs))
	for i, input := range inputs {
		texts[i] = formatMessage(input)
	}
	parts := append([]string{key, strconv.Itoa(attempt)}, texts...)
	sort.Strings(parts[2:])
	edges := make([]uint64, len(inputs))
	for i, own := range texts {
		edges[i] = maker.child(append(parts, own)...)
	}
	return edges
}

// merged sorts ids by anchor, and XORs those of the same tree.
func merged(ids []idIn) []idIn {
	if len(ids) < 2 {
		return ids
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i].anchor < ids[j].anchor })
	last := 0
	for _, id := range ids[1:] {
		if id.anchor == ids[last].anchor {
			ids[last].tuple ^= id.tuple
		} else {
			last++
			ids[last] = id
		}
	}
	return ids[:last+1]
}

// Ack acks the messages. It returns when their rows are in the buffer, see Flush.
func (p *Processing) Ack(ctx context.Context) error { return p.end(ctx, "acked", 0, "") }

// Fail fails the messages and their trees; why is cut to 255 bytes, with control characters replaced.
func (p *Processing) Fail(ctx context.Context, why string) error {
	return p.end(ctx, "failed", flagFail, clip(why))
}

// Touch resets the timeout of the trees.
func (p *Processing) Touch(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	var rows []change
	for _, id := range p.rows {
		rows = append(rows, change{anchor: id.anchor, flags: flagTouch})
	}
	return p.send(ctx, rows)
}

func (p *Processing) end(ctx context.Context, state string, flags byte, why string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	var rows []change
	for _, id := range p.rows {
		rows = append(rows, change{anchor: id.anchor, delta: id.tuple, flags: flags, why: why})
	}
	// After an error no row was accepted, so the messages stay open.
	err := p.send(ctx, rows)
	if err == nil {
		p.state = state
	}
	return err
}

func (p *Processing) send(ctx context.Context, rows []change) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := p.client.add(ctx, rows)
	return err
}

func (p *Processing) check() error {
	if p.state != "" {
		return &Error{Code: CodeClosed, Words: "this message was " + p.state + " before"}
	}
	return nil
}
