package acker

import (
	"context"
	"sort"
	"strings"
	"sync"
)

// Tree is one that has begun: its anchor, and the texts of the ids of its first messages. Send each
// message with its text, say in a header.
type Tree struct {
	Anchor   uint64
	Messages []string
}

// Track begins a tree of so many first messages, and waits until it is applied: send them then.
// With none it is complete at once. Every attempt is a tree of its own; sourceID comes back with
// the verdict.
//
// Who does not know yet how many there are tracks one, and processes that one itself.
//
// After CodeRejected, emit nothing; its source is told by a nack. After any other error it may be
// there: track anew, and ignore the verdict of a tree that you do not know.
func (c *Client) Track(ctx context.Context, task, sourceID string, messages int) (Tree, error) {
	if err := checkName("task", task); err != nil {
		return Tree{}, err
	}
	if err := checkText("source id", sourceID, 1); err != nil {
		return Tree{}, err
	}
	if messages < 0 || messages > 65536 {
		return Tree{}, refused("a tree has 0 to 65536 first messages, not %d", messages)
	}
	tree := Tree{Messages: make([]string, messages)}
	delta := uint64(0)
	for {
		ids, err := NewIDs(messages + 1)
		if err != nil {
			return Tree{}, err
		}
		tree.Anchor = ids[messages] & anchorMax
		delta, err = xorIDs(ids[:messages])
		if err != nil || tree.Anchor == 0 || delta == 0 && messages > 0 {
			continue // once in 2^62
		}
		for i, id := range ids[:messages] {
			tree.Messages[i] = formatMessage([]idIn{{tree.Anchor, id}})
		}
		break
	}
	into, err := c.add(ctx, []change{{
		anchor: tree.Anchor, delta: delta, task: task, source: sourceID, heard: true,
	}})
	if err != nil {
		return Tree{}, err
	}
	its := into[0]
	select {
	case <-its.done:
	case <-ctx.Done():
		return Tree{}, ended(ctx, "the tree was not tracked in time, or may be later")
	}
	if its.err != nil {
		return Tree{}, its.err
	}
	rejected := false
	for _, anchor := range its.applied.Rejected {
		rejected = rejected || anchor == tree.Anchor
	}
	if its.applied.Repeated && delta != 0 {
		// The first reply was lost, and with it whether it was rejected.
		known, err := c.Show(ctx, tree.Anchor)
		if err != nil {
			return Tree{}, err
		}
		rejected = rejected || known == nil || known.Age >= known.Buckets
	}
	if rejected {
		return Tree{}, &Error{Code: CodeRejected, Words: "too much is pending, and the tree was " +
			"nacked at once; emit nothing of it, and try again later"}
	}
	return tree, nil
}

// Block is a block of trees that has begun.
type Block struct {
	Number uint64
	Slots  int
}

// Anchor of the tree in a slot.
func (b Block) Anchor(slot int) uint64 { return 1<<62 | b.Number<<12 | uint64(slot) }

// TrackBlock begins a block of trees: for each slot the XOR of the ids of its first messages,
// which are sent behind it. Its number is derived from task and label, so the label must tell
// attempts apart: the same again, when it is not known whether it was applied, is no second
// block. Errors as of Track.
func (c *Client) TrackBlock(ctx context.Context, task, label string, deltas []uint64) (Block, error) {
	block := Block{BlockNumber(task, label), len(deltas)}
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
			known, err := c.Show(ctx, block.Anchor(0))
			if err != nil {
				return Block{}, err
			}
			rejected = known == nil || known.Age >= known.Buckets
			break
		}
	}
	if rejected {
		return Block{}, &Error{Code: CodeRejected, Words: "too much is pending, or the block's last " +
			"life expires just now; it was nacked at once: emit nothing of it, and replay it later " +
			"under another label (it never fits above twice a shard's share of high_water)"}
	}
	return block, nil
}

// Processing is what a bolt does with a message, or several together, for a join. Any goroutine may
// use it. What is never acked nor failed expires.
type Processing struct {
	client *Client
	inputs [][]idIn

	mu    sync.Mutex
	edges []uint64 // of each input, the XOR of the edges of what it caused
	state string
}

// Process begins to process messages, by the texts of their ids. Of an unanchored message, whose
// text is empty, nothing is sent.
func (c *Client) Process(messages ...string) (*Processing, error) {
	p := &Processing{client: c, edges: make([]uint64, len(messages))}
	seen := map[idIn]struct{}{}
	for _, text := range messages {
		ids, err := parseMessage(text)
		if err != nil {
			return nil, err
		}
		if len(messages) > 1 {
			for _, id := range ids {
				if _, twice := seen[id]; twice {
					return nil, refused("message %d:%d is there twice, its rows would cancel",
						id.anchor, id.tuple)
				}
				seen[id] = struct{}{}
			}
		}
		p.inputs = append(p.inputs, ids)
	}
	return p, nil
}

// Emit gives the text of the id of a message that all inputs caused: send one message with it,
// before Ack.
func (p *Processing) Emit() (string, error) {
	places := make([]int, len(p.inputs))
	for i := range places {
		places[i] = i
	}
	return p.EmitFrom(places...)
}

// EmitFrom is likewise of some inputs, by their places; of none, it is unanchored, and its text
// empty.
func (p *Processing) EmitFrom(places ...int) (string, error) {
	chosen := make(map[int]struct{}, len(places))
	for _, place := range places {
		if place < 0 || place >= len(p.inputs) {
			return "", refused("there is no input %d", place)
		}
		chosen[place] = struct{}{}
	}
	if len(chosen) < len(places) {
		return "", refused("an input is there twice")
	}
	for {
		edges, err := NewIDs(len(places))
		if err != nil {
			return "", err
		}
		ids, sound := p.child(places, edges)
		if len(ids) > maxTrees {
			return "", refused("a message has at most %d trees", maxTrees)
		}
		if !sound {
			continue // edges that cancel, once in 2^63
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := p.check(); err != nil {
			return "", err
		}
		for i, place := range places {
			p.edges[place] ^= edges[i]
		}
		return formatMessage(ids), nil
	}
}

// child gives the ids of a message: in each tree the XOR of the edges of the inputs there.
func (p *Processing) child(places []int, edges []uint64) ([]idIn, bool) {
	var ids []idIn
	for i, place := range places {
		for _, input := range p.inputs[place] {
			ids = append(ids, idIn{input.anchor, edges[i]})
		}
	}
	ids = merged(ids)
	for _, id := range ids {
		if id.tuple == 0 {
			return ids, false
		}
	}
	return ids, true
}

// merged sorts by anchor, and XORs what stands in one tree.
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

// Ack says that the messages were processed. It returns when their rows are in the buffer, see
// Flush.
func (p *Processing) Ack(ctx context.Context) error { return p.end(ctx, "acked", 0, "") }

// Fail says that they failed, and with them their trees, and why: of the words what a row can hold.
func (p *Processing) Fail(ctx context.Context, why string) error {
	return p.end(ctx, "failed", flagFail, clip(why))
}

// Touch asks for more time: the clocks of their trees start anew.
func (p *Processing) Touch(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(); err != nil {
		return err
	}
	var rows []change
	for _, id := range p.rows() {
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
	for _, id := range p.rows() {
		rows = append(rows, change{anchor: id.anchor, delta: id.tuple, flags: flags, why: why})
	}
	// With an error nothing was said; it is open as before.
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

// rows gives the whole row of each tree: the ids of the inputs there XOR all their edges.
func (p *Processing) rows() []idIn {
	var ids []idIn
	for place, input := range p.inputs {
		for _, id := range input {
			ids = append(ids, idIn{id.anchor, id.tuple ^ p.edges[place]})
		}
	}
	return merged(ids)
}

func (p *Processing) check() error {
	if p.state != "" {
		return &Error{Code: CodeClosed, Words: "this message was " + p.state + " before"}
	}
	return nil
}

// clean is for texts of Redis in which bytes that are not UTF-8 may stand.
func clean(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
