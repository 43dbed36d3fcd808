package acker

import (
	"context"
	"sync"
	"time"
)

// gatherer folds rows into batches, one a shard, and says when one is ready to be sent.
type gatherer struct {
	mu      sync.Mutex
	open    map[int]*gathered // by shard
	order   []*gathered       // open ones, the oldest first; also some that are no more
	ready   []*gathered       // full ones
	alive   map[*gathered]struct{}
	flying  int
	waiting int // rows that were not answered
	shards  int
	room    chan struct{} // closed, and made anew, when rows were answered
	closed  bool
	failed  error // of the first batch that was given up since the last flush
}

type gathered struct {
	batch   *Batch
	shard   int
	due     time.Time
	sealed  bool
	unheard bool // rows are in it of which nobody waits to be told
	done    chan struct{}
	applied Applied
	err     error
}

// patience is for how long a tree that somebody waits for lingers at most.
const patience = 2 * time.Millisecond

// change is one row that comes in.
type change struct {
	anchor, delta uint64
	flags         byte
	why           string
	task          string // of a TRACK
	source        string
	heard         bool
}

func (g *gatherer) begin() {
	g.open, g.alive, g.room = map[int]*gathered{}, map[*gathered]struct{}{}, make(chan struct{})
}

// take gives the next batch that may be sent now.
func (g *gatherer) take(now time.Time) *gathered {
	if len(g.ready) > 0 {
		next := g.ready[0]
		g.ready = g.ready[1:]
		return next
	}
	var next *gathered
	rest := g.order[:0]
	for _, its := range g.order {
		switch {
		case its.sealed:
		case next == nil && !now.Before(its.due):
			next = its
		default:
			rest = append(rest, its)
		}
	}
	g.order = rest
	if next != nil {
		g.seal(next)
	}
	return next
}

func (g *gatherer) seal(its *gathered) {
	its.sealed = true
	if g.open[its.shard] == its {
		delete(g.open, its.shard)
	}
}

// add takes in rows that were checked, all of them. Each of a message is whole in itself.
func (c *Client) add(ctx context.Context, changes []change) ([]*gathered, error) {
	end := time.Time{}
	if c.options.RetryFor != 0 {
		end = c.deadline()
	}
	config, err := c.configuration(ctx, end, true)
	if err != nil {
		return nil, err
	}
	g := &c.gather
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.waiting >= c.options.Buffer && !g.closed {
		room := g.room
		g.mu.Unlock()
		select {
		case <-room:
			g.mu.Lock()
		case <-ctx.Done():
			g.mu.Lock()
			return nil, &Error{Code: CodeFull, Cause: ctx.Err(), Words: "Redis is too slow for this " +
				"program, or away: rows wait for it, and none was answered in time"}
		}
	}
	if g.closed {
		return nil, &Error{Code: CodeClosed, Words: "this client was closed; nothing is taken in"}
	}
	g.shards = config.shards
	into := make([]*gathered, len(changes))
	for i := range changes {
		if into[i], err = c.put(&changes[i]); err != nil {
			return nil, err // cannot be: it was checked
		}
	}
	c.dispatch()
	return into, nil
}

func (c *Client) put(change *change) (*gathered, error) {
	g := &c.gather
	shard := shardOf(change.anchor, g.shards)
	its := g.open[shard]
	if its != nil && !its.takes(change) {
		g.seal(its)
		g.ready = append(g.ready, its)
		its = nil
	}
	if its == nil {
		its = &gathered{batch: &Batch{}, shard: shard, done: make(chan struct{})}
		g.open[shard], g.alive[its] = its, struct{}{}
		g.order = append(g.order, its)
		if c.options.Linger > 0 {
			c.wakeAt(its, c.options.Linger)
		}
	}
	before := its.batch.Len()
	var err error
	if change.task != "" {
		its.batch.task = change.task
		err = its.batch.Track(change.anchor, change.source)
		if err == nil {
			err = its.batch.add(change.anchor, change.delta, 0, "")
		}
	} else {
		err = its.batch.add(change.anchor, change.delta, change.flags, change.why)
	}
	its.unheard = its.unheard || !change.heard
	if change.heard && its.due.After(time.Now().Add(patience)) {
		c.wakeAt(its, patience) // somebody waits for it
	}
	g.waiting += its.batch.Len() - before
	if its.batch.Len() >= maxRows {
		g.seal(its)
		g.ready = append(g.ready, its)
	}
	return its, err
}

func (c *Client) wakeAt(its *gathered, wait time.Duration) {
	its.due = time.Now().Add(wait)
	time.AfterFunc(wait, func() {
		c.gather.mu.Lock()
		c.dispatch()
		c.gather.mu.Unlock()
	})
}

func (g *gathered) takes(change *change) bool {
	if g.batch.Full() {
		return false
	}
	return change.task == "" || (g.batch.task == "" || g.batch.task == change.task) &&
		!g.batch.tracks(change.anchor)
}

// dispatch sends what is ready while lanes are free. The lock is held.
func (c *Client) dispatch() {
	g := &c.gather
	for g.flying < c.options.Lanes {
		next := g.take(time.Now())
		if next == nil {
			return
		}
		g.flying++
		go c.fly(next)
	}
}

func (c *Client) fly(its *gathered) {
	rows := its.batch.Len()
	// It ends by RetryFor, and the fence: rows that were not sent yet wait for Redis.
	its.applied, its.err = c.Apply(context.Background(), its.batch)
	if its.err != nil && its.unheard && c.options.OnGivenUp != nil {
		anchors := make([]uint64, 0, rows)
		for i := range its.batch.rows {
			anchors = append(anchors, its.batch.rows[i].anchor)
		}
		c.options.OnGivenUp(its.err, anchors)
	}
	g := &c.gather
	g.mu.Lock()
	g.flying--
	g.waiting -= rows
	delete(g.alive, its)
	if its.err != nil && its.unheard && g.failed == nil {
		g.failed = its.err
	}
	close(its.done)
	close(g.room)
	g.room = make(chan struct{})
	c.dispatch()
	g.mu.Unlock()
}

// Flush sends what came in before, without lingering, and waits until it is answered. Its error is
// that of the first batch that was given up since the last Flush, or while it waits; of several that
// flush at once, each is told.
func (c *Client) Flush(ctx context.Context) error { return c.settled(ctx, c.hurried()) }

// hurried lets all rows go that came in before.
func (c *Client) hurried() []*gathered {
	g := &c.gather
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*gathered
	for its := range g.alive {
		its.due = time.Time{}
		all = append(all, its)
	}
	c.dispatch()
	return all
}

func (c *Client) settled(ctx context.Context, all []*gathered) error {
	g := &c.gather
	for _, its := range all {
		select {
		case <-its.done:
		case <-ctx.Done():
			return ended(ctx, "not all rows were answered in time; they are still sent")
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	failed := g.failed
	g.failed = nil
	for i := 0; failed == nil && i < len(all); i++ {
		if all[i].unheard {
			failed = all[i].err // another Flush has been told
		}
	}
	return failed
}

// Close takes nothing in any more, and flushes. It leaves the Redis open, which is yours.
func (c *Client) Close(ctx context.Context) error {
	c.gather.mu.Lock()
	c.gather.closed = true
	c.gather.mu.Unlock()
	return c.Flush(ctx)
}

// Ack says that a message was processed, as Batch.Ack does, when its batch is full or Linger is
// over. It returns when the row is in the buffer; see Flush.
func (c *Client) Ack(ctx context.Context, anchor, tuple uint64, emitted ...uint64) error {
	delta, err := whole(tuple, emitted)
	return c.addOne(ctx, change{anchor: anchor, delta: delta}, err)
}

// Fail says that a tree failed, as Batch.Fail does; likewise.
func (c *Client) Fail(ctx context.Context, anchor uint64, why string) error {
	err := checkText("why", why, 0)
	return c.addOne(ctx, change{anchor: anchor, flags: flagFail, why: why}, err)
}

// Touch asks for more time, as Batch.Touch does; likewise.
func (c *Client) Touch(ctx context.Context, anchor uint64) error {
	return c.addOne(ctx, change{anchor: anchor, flags: flagTouch}, nil)
}

func (c *Client) addOne(ctx context.Context, one change, err error) error {
	if err == nil {
		err = checkAnchor(one.anchor)
	}
	if err == nil {
		_, err = c.add(ctx, []change{one})
	}
	return err
}
