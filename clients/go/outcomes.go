package acker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

const maxEntries = 64

// Outcome is a verdict on one tree.
type Outcome struct {
	// Verdict is ack: complete; nack: replay it under a new anchor; touch: its timeout was reset.
	Verdict string
	// Reason is completed, failed, expired, overflow, conflict or reset.
	Reason   string
	Anchor   uint64
	SourceID string // for a tree in a block, the block's label
	Why      string // the reason given when it failed
	AgeMs    int64  // from the first row to the verdict

	// The others describe a tree that expired.

	Cause    string   // idle: no row came for long enough; or deadline; "" if the tree did not expire
	Residual uint64   // the XOR of the ids of its outstanding messages; 0 if it is unknown
	IdleMs   int64    // from the last row to the verdict; in a block, from the last row of the block
	Edges    []string // the edges on which an odd number of messages is outstanding
}

// Slot returns the slot of a tree in a block, and -1 for a loose tree.
func (o Outcome) Slot() int {
	if o.Anchor > anchorMax {
		return slotOf(o.Anchor)
	}
	return -1
}

// Entry is one entry of an outcome stream: outcomes of one call with the same verdict and reason.
type Entry struct {
	Shard    int
	ID       string
	Outcomes []Outcome
}

// Outcomes reads the verdicts of one task. Only one reader may take; outcomes that were not taken are
// read again.
type Outcomes struct {
	client *Client
	task   string
	err    error
}

// Outcomes returns the reader of a task's verdicts.
func (c *Client) Outcomes(task string) *Outcomes {
	return &Outcomes{c, task, checkName("task", task)}
}

// Read returns up to count entries a shard, 1 to 64, oldest first; nil if no outcome waits.
func (o *Outcomes) Read(ctx context.Context, count int) ([]Entry, error) {
	if o.err != nil {
		return nil, o.err
	}
	if count < 1 || count > maxEntries {
		return nil, refused("count must be 1 to %d entries a shard, not %d", maxEntries, count)
	}
	c := o.client
	config, err := c.configuration(ctx, c.deadline(), true)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for shard := 0; shard < config.shards; shard++ {
		prefix := c.prefix(shard)
		var replies []interface{}
		err := c.runUntil(ctx, c.deadline(), func() (err error) {
			replies, err = redis.Values(c.redis.Do(prefix, "XRANGE", prefix+":outcomes:"+o.task,
				"-", "+", "COUNT", count))
			return translate(err)
		})
		if err != nil {
			return nil, err
		}
		for _, reply := range replies {
			entry, err := readEntry(shard, reply, config.ids)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		}
	}
	// A deleted stream reads like an empty one, so check that the number of shards is still the same.
	shards := 0
	err = c.runUntil(ctx, c.deadline(), func() (err error) {
		stored, err := redis.String(c.redis.Do(c.prefix(0), "HGET", c.prefix(0)+":meta", "shards"))
		if err == redis.ErrNil {
			shards = config.shards // the namespace was dropped, or is being created
			return nil
		} else if err != nil {
			return translate(err)
		}
		shards, err = shardsOf(stored)
		return err
	})
	if err == nil && shards != config.shards {
		c.forget()
		if len(entries) == 0 {
			return o.Read(ctx, count)
		}
	}
	return entries, err
}

// Take deletes handled entries, and returns the number of verdicts that they held. It skips entries
// that were already deleted.
func (o *Outcomes) Take(ctx context.Context, entries []Entry) (int64, error) {
	if o.err != nil {
		return 0, o.err
	}
	ids := map[int][]interface{}{}
	var order []int
	for _, entry := range entries {
		if ids[entry.Shard] == nil {
			order = append(order, entry.Shard)
		}
		ids[entry.Shard] = append(ids[entry.Shard], entry.ID)
	}
	taken := int64(0)
	for _, shard := range order {
		for its := ids[shard]; len(its) > 0; {
			args := append([]interface{}{o.task}, its[:min(maxTake, len(its))]...)
			var counts []int64
			err := o.client.runUntil(ctx, o.client.deadline(), func() (err error) {
				counts, err = redis.Int64s(o.client.run("take", shard, args...))
				return err
			})
			if err != nil {
				return taken, err
			}
			if len(counts) != 4 || counts[3] < 1 || counts[3] > int64(len(its)) {
				return taken, unreadable("take")
			}
			taken += counts[1]
			its = its[counts[3]:]
		}
	}
	return taken, nil
}

// Handle passes each waiting outcome to a function, and takes an entry after all its outcomes were
// handled without an error. It returns when no outcome waits, or with the error.
func (o *Outcomes) Handle(ctx context.Context, handle func(Outcome) error) error {
	for {
		entries, err := o.Read(ctx, 16)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, entry := range entries {
			for _, outcome := range entry.Outcomes {
				if err := handle(outcome); err != nil {
					return err
				}
			}
			if _, err := o.Take(ctx, []Entry{entry}); err != nil {
				return err
			}
		}
	}
}

func readEntry(shard int, reply interface{}, ids *idMaker) (Entry, error) {
	bad := &Error{Code: "SCHEMA", Words: "an entry of the outcomes cannot be parsed; has another program " +
		"written it?"}
	parts, err := redis.Values(reply, nil)
	if err != nil || len(parts) != 2 {
		return Entry{}, bad
	}
	id, err := redis.String(parts[0], nil)
	if err != nil {
		return Entry{}, bad
	}
	fields, err := redis.StringMap(parts[1], nil)
	if err != nil {
		return Entry{}, bad
	}
	entry := Entry{Shard: shard, ID: id}
	if _, inBlock := fields["block"]; inBlock {
		entry.Outcomes, err = readBlock(fields, ids)
	} else {
		entry.Outcomes, err = readLoose(fields, ids)
	}
	// If a bitmap is lost, there are more verdicts: acks of trees that failed before, or do not exist.
	if err != nil || strconv.Itoa(len(entry.Outcomes)) != fields["n"] {
		return Entry{}, bad
	}
	return entry, nil
}

func readLoose(fields map[string]string, ids *idMaker) ([]Outcome, error) {
	var rows [][6]interface{} // the last two only of trees that expired
	numbers := json.NewDecoder(strings.NewReader(fields["rows"]))
	numbers.UseNumber()
	if err := numbers.Decode(&rows); err != nil {
		return nil, err
	}
	found := make([]Outcome, len(rows))
	for i, row := range rows {
		hex, _ := row[0].(string)
		anchor, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			return nil, err
		}
		source, _ := row[1].(string)
		number, _ := row[2].(json.Number)
		text, _ := row[3].(string)
		age, err := strconv.ParseFloat(string(number), 64) // in ms, exact in a double
		if err != nil {
			return nil, err
		}
		found[i] = Outcome{Verdict: fields["verdict"], Reason: fields["reason"], Anchor: anchor,
			SourceID: source, AgeMs: int64(age)}
		residual, expired := row[4].(string)
		if !expired {
			found[i].Why = text
			continue
		}
		number, _ = row[5].(json.Number)
		idle, err := strconv.ParseFloat(string(number), 64)
		if err != nil {
			return nil, err
		}
		if err := found[i].expired(text, residual, int64(idle), ids); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// expired sets the fields of a tree that expired.
func (o *Outcome) expired(cause, residual string, idleMs int64, ids *idMaker) (err error) {
	o.Cause, o.IdleMs = cause, idleMs
	o.Residual, err = strconv.ParseUint(residual, 16, 64)
	o.Edges = ids.edgesOf(o.Residual)
	return err
}

func readBlock(fields map[string]string, ids *idMaker) ([]Outcome, error) {
	number, err := strconv.ParseUint(fields["block"], 16, 50)
	if err != nil {
		return nil, err
	}
	age, err := strconv.ParseInt(fields["age"], 10, 64)
	if err != nil {
		return nil, err
	}
	block := Block{Number: number}
	one := Outcome{Verdict: fields["verdict"], Reason: fields["reason"], SourceID: fields["label"],
		AgeMs: age}
	var found []Outcome
	if rows, named := fields["rows"]; named {
		var its [][2]json.RawMessage
		if err := json.Unmarshal([]byte(rows), &its); err != nil {
			return nil, err
		}
		for _, each := range its {
			var slot int
			if err := json.Unmarshal(each[0], &slot); err != nil {
				return nil, err
			}
			if err := json.Unmarshal(each[1], &one.Why); err != nil {
				return nil, err
			}
			one.Anchor = block.Anchor(slot)
			found = append(found, one)
		}
		return found, nil
	}
	slots, err := strconv.Atoi(fields["slots"])
	if err != nil || slots < 1 || slots > maxSlots {
		return nil, refused("%q slots", fields["slots"])
	}
	mixed, idle := one.Verdict == "mixed", int64(0)
	var failed, nacked, present bitmap
	if fields["failed"] != "" {
		if failed, err = readBitmap(fields["failed"], slots); err != nil {
			return nil, err
		}
	}
	if text, partial := fields["present"]; partial {
		if present, err = readBitmap(text, slots); err != nil {
			return nil, err
		}
	}
	residuals := fields["residuals"]
	if mixed {
		if nacked, err = readBitmap(fields["nacked"], slots); err != nil {
			return nil, err
		}
		if idle, err = strconv.ParseInt(fields["idle"], 10, 64); err != nil {
			return nil, err
		}
		if len(residuals) != 16*nacked.count() {
			return nil, refused("%d digits of residuals for %d slots", len(residuals), nacked.count())
		}
	}
	for slot := 0; slot < slots; slot++ {
		residual := ""
		if nacked.has(slot) {
			residual, residuals = residuals[:16], residuals[16:]
		}
		if failed.has(slot) || present != nil && !present.has(slot) {
			continue // it was nacked when it failed, or holds no tree
		}
		its := one
		its.Anchor = block.Anchor(slot)
		if residual != "" {
			its.Verdict, its.Reason = "nack", "expired"
			if err := its.expired(fields["cause"], residual, idle, ids); err != nil {
				return nil, err
			}
		} else if mixed {
			its.Verdict, its.Reason = "ack", "completed"
		}
		found = append(found, its)
	}
	return found, nil
}

// bitmap is a set of slots of a block: bit 7 of byte 0 is slot 0.
type bitmap []byte

// readBitmap parses a bitmap in hex.
func readBitmap(text string, slots int) (bitmap, error) {
	found, err := hex.DecodeString(text)
	if err == nil && !bitmap(found).fits(slots) {
		err = refused("%q is not a bitmap of %d slots", text, slots)
	}
	return found, err
}

// fits reports whether this is a bitmap of a block with this number of slots.
func (b bitmap) fits(slots int) bool {
	return len(b) == (slots+7)/8 && b[len(b)-1]<<uint((slots+7)%8+1) == 0
}

// has reports whether a slot is in the bitmap; an empty one has none.
func (b bitmap) has(slot int) bool { return slot/8 < len(b) && b[slot/8]&(0x80>>uint(slot%8)) != 0 }

func (b bitmap) count() int {
	sum := 0
	for _, one := range b {
		sum += bits.OnesCount8(one)
	}
	return sum
}
