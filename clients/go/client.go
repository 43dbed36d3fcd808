// Package acker lets a Go program take part in tuple trees that Redis counts: a source tracks a
// tree, bolts ack and fail its messages, and the source reads the verdict.
//
// lua/README.md of acker-redis describes the wire protocol and its rules.
package acker

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"log"
	mathrand "math/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

//go:embed lua/*.lua
var sources embed.FS

type script struct{ source, sha string }

var scripts = func() map[string]script {
	found := map[string]script{}
	for _, name := range []string{"apply", "apply_blocks", "take", "status", "show"} {
		source, err := sources.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // cannot happen: the file is embedded
		}
		sum := sha1.Sum(source)
		found[name] = script{string(source), hex.EncodeToString(sum[:])}
	}
	return found
}()

// forever is a duration to which a time can still be added without overflow.
const forever = 100 * 365 * 24 * time.Hour

// NoRetry is a value of Options.RetryFor: a batch is sent only once.
const NoRetry time.Duration = -1

const (
	firstPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
	idsRetry     = 2 * time.Second // until the next attempt to read edges and salt
)

// Options are the settings of a Client; the zero value is a valid default.
type Options struct {
	// Linger is how long rows wait for others to join them; 0 means 2 ms, NoLinger no wait.
	Linger time.Duration
	// RetryFor is how long a batch is retried that got no reply or was refused with BACKLOG. 0 means
	// as long as its fence holds, which is the upper limit in any case. NoRetry sends it once.
	RetryFor time.Duration
	// Lanes is the maximum number of batches in flight; 0 means 4.
	Lanes int
	// Buffer is the maximum number of waiting rows; above it, calls wait for room. 0 means 65536.
	Buffer int
	// OnGivenUp, if not nil, is called for each batch of rows of processed messages that was given up:
	// its trees expire. It must not wait for the Client, because Flush waits for it. Track and
	// Apply return their errors to their callers.
	OnGivenUp func(err error, anchors []uint64)
}

// NoLinger is a value of Options.Linger: rows are sent as soon as a lane is free.
const NoLinger time.Duration = -1

// Client takes part in the trees of one namespace. It is safe for concurrent use.
type Client struct {
	redis     Redis
	namespace string
	options   Options
	lanes     chan *lane // the free lanes; nil stands for a lane that is not created yet

	mu       sync.Mutex
	config   *config
	ids      *idMaker  // the last that was read; nil until the edges and the salt are known
	idsDue   time.Time // when to try again to read them, after a first attempt
	gather   gatherer
	unlisted *unlisted
}

// New returns a client of a namespace, which must exist when the first rows are sent. New sends
// nothing to Redis.
func New(redis Redis, namespace string, options Options) (*Client, error) {
	if err := checkName("namespace", namespace); err != nil {
		return nil, err
	}
	if options.Linger == 0 {
		options.Linger = 2 * time.Millisecond
	}
	if options.Lanes == 0 {
		options.Lanes = 4
	}
	if options.Buffer == 0 {
		options.Buffer = 65536
	}
	if options.Lanes < 1 || options.Lanes > 64 || options.Buffer < 1 || options.Linger > 24*time.Hour {
		return nil, refused("Lanes must be 1 to 64, Buffer at least 1, Linger at most a day; not %d, %d, %v",
			options.Lanes, options.Buffer, options.Linger)
	}
	c := &Client{redis: redis, namespace: namespace, options: options,
		unlisted: &unlisted{names: map[Edge]struct{}{}}}
	c.lanes = make(chan *lane, options.Lanes)
	for i := 0; i < options.Lanes; i++ {
		c.lanes <- nil
	}
	c.gather.begin()
	return c, nil
}

// lane is a producer lane: a random name, which is drawn once, and increasing numbers.
type lane struct {
	name string
	seq  uint64
}

func newLane() (*lane, error) {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return nil, noRandom(err)
	}
	return &lane{name: hex.EncodeToString(raw[:])}, nil
}

// config is the configuration of the namespace, read from shard 0.
type config struct {
	shards, buckets int
	highWater       int64
	fence           time.Duration // how long a fence holds: N-1 ticks
	reshard         bool
	ids             *idMaker
}

// Applied is the result of a batch. If Repeated is set, a call was a repeat whose first reply was
// lost: its counts and its rejected trees are missing.
type Applied struct {
	Tracked, Acked, Failed int64
	// Rejected holds the anchors of trees that were nacked for overflow: emit none of their messages.
	Rejected []uint64
	// RejectedBlocks holds the numbers of blocks that were nacked.
	RejectedBlocks []uint64
	Repeated       bool

	highest uint64
}

// Apply sends a batch, in one call for each of its shards, and waits until it is applied.
//
// After an error with CodeUnavailable the batch may have been applied. Apply the same Batch again,
// or drop it: its trees expire.
func (c *Client) Apply(ctx context.Context, batch *Batch) (Applied, error) {
	if batch.empty() {
		return Applied{}, nil
	}
	var free *lane
	select {
	case free = <-c.lanes:
	case <-ctx.Done():
		return Applied{}, ended(ctx, "no lane was free in time")
	}
	// A batch that may be retried keeps its lane: after a higher number it would count as a repeat.
	defer func() {
		if batch.sent != nil && batch.sent.refused() {
			batch.sent = nil
		} else if batch.sent != nil && batch.sent.lane == free && !batch.sent.answered() {
			free = nil
		}
		c.lanes <- free
	}()
	return c.deliver(ctx, batch, &free)
}

func (c *Client) deliver(ctx context.Context, batch *Batch, free **lane) (Applied, error) {
	var end time.Time
	if c.options.RetryFor != 0 {
		end = time.Now().Add(c.options.RetryFor)
	}
	config, err := c.configuration(ctx, end, batch.sent == nil)
	for retried, pause := false, firstPause; err == nil; retried = true {
		if err = batch.seal(config, free); err != nil {
			break
		}
		var applied Applied
		applied, err = c.send(ctx, batch.sent, end)
		code := Code(err)
		if code != "SHARD" && code != "NAMESPACE" {
			return applied, err
		}
		c.forget()
		if !batch.sent.refused() {
			return applied, &Error{Code: code, Cause: err, Words: err.Error() + ". A part of this batch " +
				"may have been applied before, so the rest cannot be sent to other shards: give it up. " +
				"Its trees expire; track those again that get no verdict"}
		}
		// The batch is repacked for the new shards. During a reshard, shard 0 may still have the old number.
		batch.sent = nil
		shards, refusal := config.shards, err
		config, err = c.configuration(ctx, end, false)
		if err == nil && config.shards == shards && retried {
			limit := end
			if limit.IsZero() {
				limit = time.Now().Add(config.fence)
			}
			if !config.reshard || time.Now().Add(pause).After(limit) {
				return applied, refusal
			}
			err = sleep(ctx, &pause, limit)
		}
	}
	return Applied{}, err
}

// seal packs a batch when it is sent first; from then on it accepts no rows.
func (b *Batch) seal(config *config, free **lane) (err error) {
	if b.sent != nil {
		if config.fence < b.sent.fence {
			b.sent.fence = config.fence
		}
		return nil
	}
	if *free == nil {
		if *free, err = newLane(); err != nil {
			return err
		}
	}
	b.sent = &sent{lane: *free, fence: config.fence, parts: b.parts(config.shards)}
	for _, part := range b.sent.parts {
		b.sent.lane.seq++
		part.seq = b.sent.lane.seq
	}
	return nil
}

// refused reports whether no part of the batch can have been applied.
func (s *sent) refused() bool {
	for _, part := range s.parts {
		if part.doubt || part.reply != nil {
			return false
		}
	}
	return true
}

func (s *sent) answered() bool {
	for _, part := range s.parts {
		if part.reply == nil {
			return false
		}
	}
	return true
}

// send sends the unanswered calls: those of one shard in order, the shards concurrently.
func (c *Client) send(ctx context.Context, sent *sent, end time.Time) (Applied, error) {
	byShard := map[int][]int{}
	var order []int
	for i, part := range sent.parts {
		if byShard[part.shard] == nil {
			order = append(order, part.shard)
		}
		byShard[part.shard] = append(byShard[part.shard], i)
	}
	failed := make([]error, len(sent.parts))
	run := func(places []int) {
		for _, i := range places {
			if sent.parts[i].reply == nil {
				if failed[i] = c.sendPart(ctx, sent, sent.parts[i], end); failed[i] != nil {
					return
				}
			}
		}
	}
	var others sync.WaitGroup
	for _, shard := range order[1:] {
		others.Add(1)
		go func(places []int) {
			defer others.Done()
			run(places)
		}(byShard[shard])
	}
	run(byShard[order[0]])
	others.Wait()
	for _, err := range failed {
		if err != nil {
			return Applied{}, err
		}
	}
	return combine(sent.parts), nil
}

func combine(parts []*part) Applied {
	var all Applied
	for _, part := range parts {
		if part.reply == nil {
			continue
		}
		all.Tracked += part.reply.Tracked
		all.Acked += part.reply.Acked
		all.Failed += part.reply.Failed
		all.Rejected = append(all.Rejected, part.reply.Rejected...)
		all.RejectedBlocks = append(all.RejectedBlocks, part.reply.RejectedBlocks...)
		all.Repeated = all.Repeated || part.reply.Repeated
	}
	return all
}

// sendPart sends the same bytes under the same number until they are answered or may not be sent
// again.
func (c *Client) sendPart(ctx context.Context, sent *sent, part *part, end time.Time) error {
	begun, pause := time.Now(), firstPause
	// Each part keeps its own value, because the parts of other shards are sent concurrently.
	holds := sent.fence
	for {
		now := time.Now()
		if part.first.IsZero() {
			part.first = now
		}
		if now.Sub(part.first) > holds {
			return late(nil)
		}
		before := part.doubt
		part.doubt = true
		reply, err := c.sendOnce(part, sent.lane.name, part.seq, part.digest)
		if err == nil {
			part.reply = &reply
			return nil
		}
		code, passes := Code(err), mayPass(err) && !(isFull(err) && part.onlyTracks())
		if surelyNot[code] || mayPass(err) {
			part.doubt = before
			if !before {
				part.first = time.Time{}
			}
		}
		if code != CodeUnavailable && code != CodeBacklog && !passes {
			return err
		}
		limit, given := end, err
		if limit.IsZero() {
			limit = begun.Add(holds)
		}
		if horizon := part.first.Add(holds); part.doubt && (end.IsZero() || horizon.Before(limit)) {
			limit, given = horizon, late(err)
		}
		if time.Now().Add(pause).After(limit) {
			return given
		}
		if waited := sleep(ctx, &pause, limit); waited != nil {
			return waited
		}
		if code != CodeBacklog {
			// Read for how long the fence holds now. If Redis does not answer this, retry the call anyway.
			config, failed := c.read()
			if failed == nil && config.fence < holds {
				holds = config.fence
			} else if failed != nil && Code(failed) != CodeUnavailable && !mayPass(failed) {
				return failed
			}
		}
	}
}

// surelyNot has the codes after which nothing was changed.
var surelyNot = map[string]bool{
	"ARGS": true, "SHARD": true, "NAMESPACE": true, "SCHEMA": true, "FENCE": true, "BACKLOG": true,
}

func late(cause error) error {
	return &Error{Code: CodeLate, Cause: cause, Words: "this batch was first sent too long ago to be " +
		"sent again: its fence may have expired; let its trees expire"}
}

// sleep waits, longer each time, but not beyond the limit.
func sleep(ctx context.Context, pause *time.Duration, limit time.Time) error {
	wait := *pause/2 + time.Duration(mathrand.Int63n(int64(*pause/2)))
	if *pause *= 2; *pause > longestPause {
		*pause = longestPause
	}
	if left := time.Until(limit); !limit.IsZero() && left < wait {
		wait = left
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, "no time is left for a retry")
	}
}

// sendOnce sends a part under a fence; with an empty producer it sends no fence.
func (c *Client) sendOnce(part *part, producer string, seq uint64, digest string) (Applied, error) {
	fence := ""
	if producer != "" {
		fence = strconv.FormatUint(seq, 10)
		if digest != "" {
			fence += ":" + digest
		}
	}
	args := make([]interface{}, 0, len(part.argv)+2)
	reply, err := c.run(part.script, part.shard, append(append(args, producer, fence), part.argv...)...)
	if err != nil {
		return Applied{}, err
	}
	applied, err := part.read(reply)
	if err == nil && applied.highest > seq {
		words := "lane " + producer + " is at " + strconv.FormatUint(applied.highest, 10) +
			", this batch is " + strconv.FormatUint(seq, 10) + ": a later batch, or another process, has " +
			"used the lane; this batch is not applied again"
		return applied, &Error{Code: CodeLane, Words: words}
	}
	return applied, err
}

// read parses the reply of a call.
func (p *part) read(reply interface{}) (Applied, error) {
	fields, err := redis.Values(reply, nil)
	if err == nil && len(fields) == 2 {
		highest, err := redis.String(fields[1], nil)
		number, bad := strconv.ParseUint(highest, 10, 64)
		if err == nil && bad == nil {
			return Applied{Repeated: true, highest: number}, nil
		}
	}
	if err != nil || len(fields) != 8 {
		return Applied{}, unreadable(p.script)
	}
	var numbers []byte
	var applied Applied
	rest, err := redis.Scan(fields[1:4], &applied.Tracked, &applied.Acked, &applied.Failed)
	if err == nil && len(rest) == 0 {
		numbers, err = redis.Bytes(fields[7], nil)
	}
	if err != nil {
		return Applied{}, unreadable(p.script)
	}
	for i := 0; i+1 < len(numbers); i += 2 {
		number := int(numbers[i])<<8 | int(numbers[i+1])
		if number >= len(p.ids) {
			return Applied{}, unreadable(p.script)
		}
		if p.script == "apply" {
			applied.Rejected = append(applied.Rejected, p.ids[number])
		} else {
			applied.RejectedBlocks = append(applied.RejectedBlocks, p.ids[number])
		}
	}
	return applied, nil
}

func unreadable(script string) error {
	return &Error{Code: CodeRedis, Words: "the reply of " + script + " cannot be parsed"}
}

func badConfig() error {
	return &Error{Code: "SCHEMA", Words: "the configuration in Redis is one that no script writes"}
}

// shardsOf returns a number of shards that Redis holds: a power of two up to maxShards.
func shardsOf(text string) (int, error) {
	shards, err := strconv.Atoi(text)
	if err != nil || shards < 1 || shards > maxShards || shards&(shards-1) != 0 {
		return 0, badConfig()
	}
	return shards, nil
}

func (c *Client) prefix(shard int) string {
	return "acker:{" + c.namespace + ":" + strconv.Itoa(shard) + "}"
}

// run calls a script on a shard once.
func (c *Client) run(name string, shard int, args ...interface{}) (interface{}, error) {
	script, prefix := scripts[name], c.prefix(shard)
	words := make([]interface{}, 0, len(args)+4)
	words = append(append(words, script.sha, 2, prefix, prefix+":meta"), args...)
	reply, err := c.redis.Do(prefix, "EVALSHA", words...)
	if said, ok := err.(redis.Error); ok && len(said) >= 8 && said[:8] == "NOSCRIPT" {
		words[0] = script.source
		reply, err = c.redis.Do(prefix, "EVAL", words...)
	}
	return reply, translate(err)
}

// runUntil calls a read-only script, and retries it while Redis does not answer.
func (c *Client) runUntil(ctx context.Context, end time.Time, call func() error) error {
	for pause := firstPause; ; {
		err := call()
		if Code(err) != CodeUnavailable || !end.IsZero() && time.Now().Add(pause).After(end) {
			return err
		}
		if sleep(ctx, &pause, end) != nil {
			return err
		}
	}
}

// configuration returns the cached configuration if known is set, else reads it from shard 0.
func (c *Client) configuration(ctx context.Context, end time.Time, known bool) (*config, error) {
	if known {
		c.mu.Lock()
		config := c.config
		c.mu.Unlock()
		if config != nil {
			return config, nil
		}
	}
	var found *config
	err := c.runUntil(ctx, end, func() (err error) {
		found, err = c.read()
		return err
	})
	return found, err
}

// known returns the configuration, which is read from Redis if it is not cached.
func (c *Client) known(ctx context.Context) (*config, error) {
	end := time.Time{}
	if c.options.RetryFor != 0 {
		end = c.deadline()
	}
	return c.configuration(ctx, end, true)
}

// deadline returns the time until which a read-only call is retried.
func (c *Client) deadline() time.Time {
	switch {
	case c.options.RetryFor == 0:
		return time.Now().Add(10 * time.Second)
	default:
		return time.Now().Add(c.options.RetryFor)
	}
}

func (c *Client) forget() {
	c.mu.Lock()
	c.config = nil
	c.mu.Unlock()
}

func (c *Client) read() (*config, error) {
	reply, err := c.run("status", 0)
	if err != nil {
		return nil, err
	}
	fields, err := redis.Values(reply, nil)
	if err != nil || len(fields) < 6 {
		return nil, unreadable("status")
	}
	meta, err := redis.StringMap(fields[5], nil)
	if err != nil {
		return nil, unreadable("status")
	}
	shards, err := shardsOf(meta["shards"])
	if err != nil {
		return nil, err
	}
	buckets, bad1 := strconv.Atoi(meta["buckets"])
	tick, bad2 := strconv.ParseInt(meta["tick_ms"], 10, 64)
	high, bad3 := strconv.ParseInt(meta["high_water"], 10, 64)
	salt := meta["salt"]
	if bad1 != nil || bad2 != nil || bad3 != nil || buckets < minBuckets || buckets > maxBuckets || tick < 1 || tick > 1e12 ||
		len(salt) != 32 {
		return nil, badConfig()
	}
	ids := &idMaker{salt: &salt, unlisted: c.unlisted}
	if meta["edges"] != "" {
		ids.edges = strings.Split(meta["edges"], ",")
	}
	found := &config{shards, buckets, high, forever, meta["reshard"] != "", ids}
	if held := time.Duration(tick) * time.Millisecond; tick < int64(forever/time.Millisecond)/16 {
		found.fence = time.Duration(buckets-1) * held
	}
	c.mu.Lock()
	c.config, c.ids = found, ids
	c.mu.Unlock()
	return found, nil
}

// maker returns what makes ids. If the configuration is not known, it is read once, and while Redis
// does not answer, ids are made that are right in any namespace. With a salt it is read until the
// deadline.
func (c *Client) maker(salt bool) (*idMaker, error) {
	c.mu.Lock()
	config, ids, due := c.config, c.ids, c.idsDue
	c.mu.Unlock()
	begun := time.Now()
	if config != nil || ids == nil && !salt && begun.Before(due) {
		if config == nil {
			return &idMaker{}, nil
		}
		return config.ids, nil
	}
	if salt {
		config, err := c.configuration(context.Background(), c.deadline(), true)
		if err != nil {
			return nil, err
		}
		return config.ids, nil
	}
	config, err := c.read()
	if err == nil {
		return config.ids, nil
	}
	if ids != nil {
		return ids, nil
	}
	if Code(err) != CodeUnavailable {
		return nil, err
	}
	if due.IsZero() {
		log.Printf("acker: %s: messages that are emitted now carry no edge, because edges and salt could "+
			"not be read; a verdict cannot tell on which edge one is lost: %v", c.namespace, err)
	}
	wait := 10 * time.Since(begun)
	if wait < idsRetry {
		wait = idsRetry
	}
	c.mu.Lock()
	c.idsDue = time.Now().Add(wait)
	c.mu.Unlock()
	return &idMaker{}, nil
}
