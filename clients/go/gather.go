package acker

import (
	"context"
	"sync"
	"time"
)

// gatherer folds rows into batches, one a shard, and decides when a batch is ready to be sent.
type gatherer struct {
	mu      sync.Mutex
	open    map[int]*gathered // by shard
	order   []*gathered       // open batches, oldest first; may also hold some that are sealed
	ready   []*gathered       // full batches
	alive   map[*gathered]struct{}
	flying  int
	waiting int // unanswered rows
	shards  int
	room    chan struct{} // closed, and replaced, when rows were answered
	closed  bool
	failed  error // error of the first batch that was given up since the last flush
}

type gathered struct {
	batch     *Batch
	shard     int
	due       time.Time
	sealed    bool
	unawaited bool // some of its rows have no caller that waits for the result
	done      chan struct{}
	applied   Applied
	err       error
}

// patience is the maximum linger of a tree whose caller waits for it.
const patience = 2 * time.Millisecond

// change is one row to be folded in.
type change struct {
	anchor, delta uint64
	flags         byte
	why           string
	task          string // of a TRACK
	source        string
	awaited       bool
}

func (g *gatherer) begin() {
	g.open, g.alive, g.room = map[int]*gathered{}, map[*gathered]struct{}{}, make(chan struct{})
}

// take returns the next batch that may be sent now.
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

// shards returns the number of shards. Until it is known, rows go into one batch, which is divided
// among the shards when it is sent. The first rows ask Redis for it; a refusal is their error.
func (c *Client) shards() (int, error) {
	c.mu.Lock()
	config := c.config
	c.mu.Unlock()
	c.gather.mu.Lock()
	before, waits := c.gather.shards, c.gather.waiting > 0
	c.gather.mu.Unlock()
	if config == nil && before == 0 && !waits {
		found, err := c.read()
		if err != nil && Code(err) != CodeUnavailable {
			return 0, err
		}
		config = found
	}
	if config != nil {
		return config.shards, nil
	}
	return before, nil
}

// add accepts rows that were checked, all of them or none.
func (c *Client) add(ctx context.Context, changes []change) ([]*gathered, error) {
	shards, err := c.shards()
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
			return nil, &Error{Code: CodeFull, Cause: ctx.Err(), Words: "rows wait for Redis, and there was " +
				"no room in time: Redis is too slow for this program, or unreachable"}
		}
	}
	if g.closed {
		return nil, &Error{Code: CodeClosed, Words: "this client is closed and takes no more rows"}
	}
	g.shards = shards
	into := make([]*gathered, len(changes))
	for i := range changes {
		if into[i], err = c.put(&changes[i]); err != nil {
			return nil, err // cannot happen: the rows were checked
		}
	}
	c.dispatch()
	return into, nil
}

func (c *Client) put(change *change) (*gathered, error) {
	g := &c.gather
	shard := 0
	if g.shards > 1 {
		shard = shardOf(change.anchor, g.shards)
	}
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
	its.unawaited = its.unawaited || !change.awaited
	if change.awaited && its.due.After(time.Now().Add(patience)) {
		c.wakeAt(its, patience) // its caller waits
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

// dispatch sends the ready batches while lanes are free. The caller holds the lock.
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
	// RetryFor and the fence end the call. Rows that were not sent yet wait for Redis.
	its.applied, its.err = c.Apply(context.Background(), its.batch)
	if its.err != nil && its.unawaited && c.options.OnGivenUp != nil {
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
	if its.err != nil && its.unawaited && g.failed == nil {
		g.failed = its.err
	}
	close(its.done)
	close(g.room)
	g.room = make(chan struct{})
	c.dispatch()
	g.mu.Unlock()
}

// Flush sends all rows accepted so far, without lingering, and waits for the replies. It returns
// the error of the first batch that was given up since the last Flush, or during this one.
// Concurrent flushes all return it.
func (c *Client) Flush(ctx context.Context) error { return c.settled(ctx, c.hurried()) }

// hurried makes all rows accepted so far ready to be sent.
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
			return ended(ctx, "not all rows got a reply in time; they are still being sent")
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	failed := g.failed
	g.failed = nil
	for i := 0; failed == nil && i < len(all); i++ {
		if all[i].unawaited {
			failed = all[i].err // another Flush has already returned g.failed
		}
	}
	return failed
}

// Close flushes, and accepts no more rows. It does not close the Redis.
func (c *Client) Close(ctx context.Context) error {
	c.gather.mu.Lock()
	c.gather.closed = true
	c.gather.mu.Unlock()
	return c.Flush(ctx)
}
