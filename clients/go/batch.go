package acker

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"sort"
	"strconv"
	"time"
)

// From lua/spec.json, by python -m proof.spec
const (
	flagTrack  = 1
	flagFail   = 2
	flagTouch  = 4
	maxShards  = 1024
	minBuckets = 2
	maxBuckets = 16
	edgeBit    = 55 // edge k is this bit + k of the ids of its messages
	maxRows    = 1024
	maxText    = 255
	maxTexts   = 64 * 1024
	maxSlots   = 4095
	maxBlocks  = 64
	maxCall    = 1024 * 1024
	maxTake    = 64
	maxMessage = 65536
	maxTrees   = 1638
)

// ofSpark matches labels of Spark's blocks, whose slots are consecutive records.
var ofSpark = regexp.MustCompile(`@(0|[1-9][0-9]{0,18})(~[1-9][0-9]{0,9})?$`)

type row struct {
	anchor, delta uint64
	flags         byte
	source, why   string
}

type block struct {
	number uint64
	label  string
	deltas []uint64
}

// Batch holds rows, folded per anchor, and blocks: at most 1024 anchors, 64 tracked blocks and
// 64 KiB of texts. Each method refuses invalid input and leaves the batch unchanged. A Batch must
// not be used by several goroutines at the same time.
type Batch struct {
	task   string
	rows   []row
	places []uint16 // hash table by anchor: index in rows plus 1, or 0; a power of two, half empty
	blocks []block
	texts  int
	sent   *sent
}

// sent holds the packed calls of a batch; while it is set, the batch accepts no rows.
type sent struct {
	lane  *lane
	fence time.Duration
	parts []*part
}

// NewBatch returns an empty batch. The task is the source that tracks in it; a batch that tracks no
// tree needs no task: pass "".
func NewBatch(task string) (*Batch, error) {
	if task != "" {
		if err := checkName("task", task); err != nil {
			return nil, err
		}
	}
	return &Batch{task: task}, nil
}

// Len returns the number of rows after folding.
func (b *Batch) Len() int { return len(b.rows) }

// Full reports whether another row or text might not fit.
func (b *Batch) Full() bool { return len(b.rows) >= maxRows || b.texts > maxTexts-maxText }

func (b *Batch) empty() bool { return len(b.rows) == 0 && len(b.blocks) == 0 }

// Track begins a tree with the source's id for it and the ids of all its first messages. A tree
// without first messages is complete immediately.
func (b *Batch) Track(anchor uint64, sourceID string, emitted ...uint64) error {
	delta, err := xorIDs(emitted)
	if err == nil {
		err = b.checkTrack(anchor, sourceID)
	}
	if err != nil {
		return err
	}
	row, err := b.fold(anchor, len(sourceID))
	if err == nil {
		row.delta ^= delta
		row.flags |= flagTrack
		row.source = sourceID
	}
	return err
}

func (b *Batch) checkTrack(anchor uint64, sourceID string) error {
	if err := b.needsTask(); err != nil {
		return err
	}
	if err := checkText("source id", sourceID, 1); err != nil {
		return err
	}
	if anchor >= 1<<62 && checkAnchor(anchor) == nil {
		return refused("anchor %d is in a block; track the whole block by TrackBlock", anchor)
	}
	if b.tracks(anchor) {
		return refused("anchor %d is tracked twice; draw a new anchor for each attempt", anchor)
	}
	return nil
}

// TrackBlock begins a block of trees: deltas has for each tree the XOR of the ids of its first
// messages, or 0 for a tree without messages, which is complete. The source chooses the number;
// Client.TrackBlock derives it.
func (b *Batch) TrackBlock(number uint64, label string, deltas []uint64) error {
	if err := b.needsTask(); err != nil {
		return err
	}
	if err := checkBlock(label, deltas); err != nil {
		return err
	}
	if number > blockMax {
		return refused("a block is a number from 0 to 2^50-1, not %d", number)
	}
	if b.block(number) != nil {
		return refused("block %q is tracked twice; use another label for each attempt", label)
	}
	for i := range b.rows {
		anchor := b.rows[i].anchor
		if anchor > anchorMax && blockOf(anchor) == number && slotOf(anchor) >= len(deltas) {
			return refused("this batch has a row of slot %d, but block %q has only %d trees",
				slotOf(anchor), label, len(deltas))
		}
	}
	if len(b.blocks) == maxBlocks {
		return refused("a batch tracks at most %d blocks; apply this one and begin another", maxBlocks)
	}
	if err := b.room(0, len(label)); err != nil {
		return err
	}
	b.texts += len(label)
	b.blocks = append(b.blocks, block{number, label, append([]uint64(nil), deltas...)})
	return nil
}

func checkBlock(label string, deltas []uint64) error {
	if err := checkText("label", label, 1); err != nil {
		return err
	}
	if ofSpark.MatchString(label) {
		return refused("label %q ends in @ and a number, as only labels of Spark do; use another", label)
	}
	if len(deltas) < 1 || len(deltas) > maxSlots {
		return refused("a block has 1 to %d trees, not %d", maxSlots, len(deltas))
	}
	for _, delta := range deltas {
		if delta > tupleMax {
			return refused("a delta is a number from 0 to 2^63-1, not %d", delta)
		}
	}
	return nil
}

// Ack acks a processed message; emitted are the ids of all messages that it caused.
func (b *Batch) Ack(anchor, tuple uint64, emitted ...uint64) error {
	delta, err := whole(tuple, emitted)
	if err != nil {
		return err
	}
	row, err := b.fold(anchor, 0)
	if err == nil {
		row.delta ^= delta
	}
	return err
}

// Fail fails a tree; why has at most 255 bytes. The message does not count as processed; see
// FailProcessed.
func (b *Batch) Fail(anchor uint64, why string) error { return b.fail(anchor, 0, flagFail, why) }

// FailProcessed fails a tree by a message that counts as processed. A block waits for the messages
// of its failed trees as for all others.
func (b *Batch) FailProcessed(anchor uint64, why string, tuple uint64, emitted ...uint64) error {
	delta, err := whole(tuple, emitted)
	if err != nil {
		return err
	}
	return b.fail(anchor, delta, flagFail, why)
}

// Touch resets the timeout of a tree; for a tree in a block, that of the whole block.
func (b *Batch) Touch(anchor uint64) error {
	return b.add(anchor, 0, flagTouch, "")
}

// add folds in a whole row.
func (b *Batch) add(anchor, delta uint64, flags byte, why string) error {
	if flags&flagFail != 0 {
		return b.fail(anchor, delta, flags, why)
	}
	row, err := b.fold(anchor, 0)
	if err == nil {
		row.delta ^= delta
		row.flags |= flags
	}
	return err
}

func (b *Batch) fail(anchor, delta uint64, flags byte, why string) error {
	if err := checkText("why", why, 0); err != nil {
		return err
	}
	if _, at := b.find(anchor); at >= 0 && b.rows[at].why != "" {
		why = "" // the first why wins
	}
	row, err := b.fold(anchor, len(why))
	if err != nil {
		return err
	}
	if why != "" {
		row.why = why
	}
	row.delta ^= delta
	row.flags |= flags
	return nil
}

func (b *Batch) needsTask() error {
	if b.task == "" {
		return refused("a TRACK row needs a source: use NewBatch(task)")
	}
	return nil
}

func (b *Batch) room(rows, texts int) error {
	if b.sent != nil {
		return refused("this batch was already sent; add new rows to a new batch")
	}
	if len(b.rows)+rows > maxRows || b.texts+texts > maxTexts {
		return refused("a batch has at most %d rows and %d bytes of texts; apply this one and begin another",
			maxRows, maxTexts)
	}
	return nil
}

func (b *Batch) block(number uint64) *block {
	for i := range b.blocks {
		if b.blocks[i].number == number {
			return &b.blocks[i]
		}
	}
	return nil
}

func (b *Batch) tracks(anchor uint64) bool {
	_, at := b.find(anchor)
	return at >= 0 && b.rows[at].flags&flagTrack != 0
}

// find returns the index of an anchor in the table and in rows; the latter is -1 if there is no row.
func (b *Batch) find(anchor uint64) (int, int) {
	if len(b.places) == 0 {
		return 0, -1
	}
	last := len(b.places) - 1
	for h := hashOf(anchor, len(b.places)); ; h = (h + 1) & last {
		if b.places[h] == 0 {
			return h, -1
		}
		if at := int(b.places[h]) - 1; b.rows[at].anchor == anchor {
			return h, at
		}
	}
}

// fold returns the row of an anchor, and reserves room for a text of texts bytes.
func (b *Batch) fold(anchor uint64, texts int) (*row, error) {
	h, at := b.find(anchor)
	if at >= 0 {
		err := b.room(0, texts)
		if err == nil {
			b.texts += texts
		}
		return &b.rows[at], err
	}
	if err := checkAnchor(anchor); err != nil {
		return nil, err
	}
	if anchor > anchorMax {
		if its := b.block(blockOf(anchor)); its != nil && slotOf(anchor) >= len(its.deltas) {
			return nil, refused("block %q has %d trees, but no slot %d",
				its.label, len(its.deltas), slotOf(anchor))
		}
	}
	if err := b.room(1, texts); err != nil {
		return nil, err
	}
	if 2*len(b.rows) >= len(b.places) {
		b.grow()
		h, _ = b.find(anchor)
	}
	b.texts += texts
	b.rows = append(b.rows, row{anchor: anchor})
	b.places[h] = uint16(len(b.rows))
	return &b.rows[len(b.rows)-1], nil
}

func (b *Batch) grow() {
	size := 4 * len(b.places)
	if size == 0 {
		size = 16
	}
	b.places = make([]uint16, size)
	for i := range b.rows {
		h, _ := b.find(b.rows[i].anchor)
		b.places[h] = uint16(i + 1)
	}
	if rows := min(size/2, maxRows); rows > cap(b.rows) {
		b.rows = append(make([]row, 0, rows), b.rows...)
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

// part is one call of a script, which is applied completely or not at all, under its own number.
type part struct {
	script string
	shard  int
	argv   []interface{} // the arguments after the fence
	ids    []uint64      // anchors or block numbers, which the rejected rows of the reply index
	digest string

	seq   uint64
	first time.Time // when the call was first sent
	doubt bool      // whether it may have been applied
	reply *Applied  // nil until the call is answered
}

// onlyTracks reports whether each row begins a tree. Such rows do not wait for memory: their retries
// would hold up rows that free some.
func (p *part) onlyTracks() bool {
	flags, loose := p.argv[0].([]byte)
	for _, flag := range flags {
		loose = loose && flag&flagTrack != 0
	}
	return p.script == "apply" && loose
}

func newPart(script string, shard int, argv []interface{}, ids []uint64) *part {
	hash := sha256.New()
	var head [12]byte
	for _, arg := range argv {
		data, isBytes := arg.([]byte)
		if !isBytes {
			data = []byte(arg.(string))
		}
		hash.Write(append(strconv.AppendInt(head[:0], int64(len(data)), 10), ' '))
		hash.Write(data)
	}
	digest := hex.EncodeToString(hash.Sum(nil)[:8])
	return &part{script: script, shard: shard, argv: argv, ids: ids, digest: digest}
}

// parts returns the calls to send: the loose rows of each shard, then its blocks.
func (b *Batch) parts(shards int) []*part {
	var parts []*part
	loose, slots := b.sorted(shards)
	for _, its := range loose {
		parts = append(parts, b.packLoose(its.shard, its.rows))
	}
	calls := map[int][]packed{}
	var order []int
	for _, its := range slots {
		shard := int(its.number & uint64(shards-1))
		if calls[shard] == nil {
			order = append(order, shard)
		}
		calls[shard] = append(calls[shard], b.packBlock(its.number, its.rows))
	}
	for _, shard := range order {
		parts = append(parts, packCalls(shard, calls[shard])...)
	}
	return parts
}

type ofShard struct {
	shard int
	rows  []*row
}

type ofBlock struct {
	number uint64
	rows   []*row
}

// sorted returns the loose rows by shard, and the blocks: tracked blocks first.
func (b *Batch) sorted(shards int) ([]*ofShard, []*ofBlock) {
	var loose []*ofShard
	var blocks []*ofBlock
	byShard, byBlock := map[int]*ofShard{}, map[uint64]*ofBlock{}
	for _, tracked := range b.blocks {
		its := &ofBlock{number: tracked.number}
		byBlock[tracked.number] = its
		blocks = append(blocks, its)
	}
	var last *ofShard
	for i := range b.rows {
		one := &b.rows[i]
		shard := shardOf(one.anchor, shards)
		if one.anchor <= anchorMax {
			if last == nil || last.shard != shard {
				if last = byShard[shard]; last == nil {
					last = &ofShard{shard: shard, rows: make([]*row, 0, len(b.rows)/shards+1)}
					byShard[shard] = last
					loose = append(loose, last)
				}
			}
			last.rows = append(last.rows, one)
			continue
		}
		number := blockOf(one.anchor)
		its := byBlock[number]
		if its == nil {
			its = &ofBlock{number: number}
			byBlock[number] = its
			blocks = append(blocks, its)
		}
		its.rows = append(its.rows, one)
	}
	return loose, blocks
}

func (b *Batch) packLoose(shard int, rows []*row) *part {
	n := len(rows)
	data := make([]byte, 17*n)
	flags, anchors, deltas := data[:n], data[n:9*n], data[9*n:]
	ids := make([]uint64, n)
	var sources, whys []interface{}
	for i, row := range rows {
		flags[i] = row.flags
		ids[i] = row.anchor
		binary.BigEndian.PutUint64(anchors[8*i:], row.anchor)
		binary.BigEndian.PutUint64(deltas[8*i:], row.delta)
		if row.flags&flagTrack != 0 {
			sources = append(sources, row.source)
		}
		if row.flags&flagFail != 0 {
			whys = append(whys, row.why)
		}
	}
	task := ""
	if sources != nil {
		task = b.task
	}
	argv := append([]interface{}{flags, anchors, deltas, task}, append(sources, whys...)...)
	return newPart("apply", shard, argv, ids)
}

// packed is one block on the wire: its arguments, their size in bytes, and its number.
type packed struct {
	argv   []interface{}
	size   int
	number uint64
}

func (b *Batch) packBlock(number uint64, rows []*row) packed {
	sort.Slice(rows, func(i, j int) bool { return rows[i].anchor < rows[j].anchor })
	var flags byte
	var header, slots, deltas, failed []byte
	tracked := b.block(number)
	var column []uint64
	if tracked != nil {
		flags |= flagTrack
		header = append(header, byte(len(tracked.deltas)>>8), byte(len(tracked.deltas)), byte(len(b.task)))
		header = append(append(header, b.task...), tracked.label...)
		column = append(column, tracked.deltas...)
	}
	for _, row := range rows {
		slot := slotOf(row.anchor)
		flags |= row.flags & flagTouch
		switch {
		case row.delta == 0:
		case tracked != nil:
			column[slot] ^= row.delta
		default:
			slots = append(slots, byte(slot>>8), byte(slot))
			column = append(column, row.delta)
		}
		if row.flags&flagFail != 0 {
			failed = append(failed, byte(slot>>8), byte(slot), byte(len(row.why)))
			failed = append(failed, row.why...)
		}
	}
	deltas = make([]byte, 8*len(column))
	for i, delta := range column {
		binary.BigEndian.PutUint64(deltas[8*i:], delta)
	}
	var named [8]byte
	binary.BigEndian.PutUint64(named[:], number)
	return packed{
		argv:   []interface{}{[]byte{flags}, named[:], header, "", slots, deltas, failed}, // "": all slots are present
		size:   9 + len(header) + len(slots) + len(deltas) + len(failed),
		number: number,
	}
}

// packCalls returns the fewest calls that can carry these blocks in this order. The limits of a
// batch keep a call below the other limits on rows and texts.
func packCalls(shard int, blocks []packed) []*part {
	var parts []*part
	var argv []interface{}
	var ids []uint64
	size := 0
	for _, one := range blocks {
		if len(ids) == maxBlocks || len(ids) > 0 && size+one.size > maxCall {
			parts = append(parts, newPart("apply_blocks", shard, argv, ids))
			argv, ids, size = nil, nil, 0
		}
		argv, ids, size = append(argv, one.argv...), append(ids, one.number), size+one.size
	}
	return append(parts, newPart("apply_blocks", shard, argv, ids))
}
