package acker

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sort"
	"strconv"
	"time"
)

const (
	flagTrack = 1
	flagFail  = 2
	flagTouch = 4

	maxRows   = 1024
	maxTexts  = 64 * 1024
	maxBlocks = 64
	maxCall   = 1024 * 1024
)

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

// Batch holds rows, folded per anchor, and blocks: at most 1024 anchors, 64 blocks that are
// tracked, and 64 KiB of texts. Each method refuses what cannot be, and the batch is then as it
// was. One goroutine at a time may use it.
type Batch struct {
	task   string
	rows   []row
	places []uint16 // by hash of the anchor: place in rows and 1, or 0; a power of two, half empty
	blocks []block
	texts  int
	sent   *sent
}

// sent is where a batch was sent; from then on no row comes in.
type sent struct {
	lane  *lane
	fence time.Duration
	parts []*part
}

// NewBatch makes an empty batch. The task is the source that tracks in it; a batch without a tree
// that begins needs none: "".
func NewBatch(task string) (*Batch, error) {
	if task != "" {
		if err := checkName("task", task); err != nil {
			return nil, err
		}
	}
	return &Batch{task: task}, nil
}

// Len is how many rows there are, after folding.
func (b *Batch) Len() int { return len(b.rows) }

// Full says whether one more row or text may be one too many.
func (b *Batch) Full() bool { return len(b.rows) >= maxRows || b.texts > maxTexts-maxText }

func (b *Batch) empty() bool { return len(b.rows) == 0 && len(b.blocks) == 0 }

// Track begins a tree: the source's own id for it, and the ids of all its first messages. With none
// it is complete at once.
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
		return refused("anchor %d is in a block; a block is tracked as a whole: TrackBlock", anchor)
	}
	if b.tracks(anchor) {
		return refused("anchor %d is tracked twice; draw one per attempt", anchor)
	}
	return nil
}

// TrackBlock begins a block of trees: for each slot the XOR of the ids of its first messages, or 0
// where no tree stands. The number is the source's own, see BlockNumber.
func (b *Batch) TrackBlock(number uint64, label string, deltas []uint64) error {
	if err := b.needsTask(); err != nil {
		return err
	}
	if err := checkText("label", label, 1); err != nil {
		return err
	}
	if number > blockMax {
		return refused("a block is a number from 0 to 2^50-1, not %d", number)
	}
	if len(deltas) < 1 || len(deltas) > maxSlots {
		return refused("a block has 1 to %d trees, not %d", maxSlots, len(deltas))
	}
	for _, delta := range deltas {
		if delta > tupleMax {
			return refused("a delta is 0 to 2^63-1, not %d", delta)
		}
	}
	if b.block(number) != nil {
		return refused("block %q is tracked twice; name each attempt", label)
	}
	for i := range b.rows {
		anchor := b.rows[i].anchor
		if anchor > anchorMax && blockOf(anchor) == number && slotOf(anchor) >= len(deltas) {
			return refused("a row of this batch is of slot %d, which block %q has not",
				slotOf(anchor), label)
		}
	}
	if len(b.blocks) == maxBlocks {
		return refused("a batch tracks at most %d blocks; begin another", maxBlocks)
	}
	if err := b.room(0, len(label)); err != nil {
		return err
	}
	b.texts += len(label)
	b.blocks = append(b.blocks, block{number, label, append([]uint64(nil), deltas...)})
	return nil
}

// Ack says that a message was processed; emitted are the ids of all messages that it caused.
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

// Fail says that the tree failed, and why, in up to 255 bytes. The message does not count as
// processed; see FailProcessed.
func (b *Batch) Fail(anchor uint64, why string) error { return b.fail(anchor, 0, flagFail, why) }

// FailProcessed fails the tree by a message that counts as processed: a block waits for the
// messages of its failed trees as for all others.
func (b *Batch) FailProcessed(anchor uint64, why string, tuple uint64, emitted ...uint64) error {
	delta, err := whole(tuple, emitted)
	if err != nil {
		return err
	}
	return b.fail(anchor, delta, flagFail, why)
}

// Touch asks for more time: the tree's clock starts anew, or that of its block.
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
		why = "" // the first one wins
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
		return refused("name the source, NewBatch(task), to track in this batch")
	}
	return nil
}

func (b *Batch) room(rows, texts int) error {
	if b.sent != nil {
		return refused("this batch was sent already; put new rows into a new one")
	}
	if len(b.rows)+rows > maxRows || b.texts+texts > maxTexts {
		return refused("a batch has at most %d rows and %d bytes of texts; begin another",
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

// find gives the place in the table, and that in rows, or -1.
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

// fold gives the row of an anchor, with room for so many bytes of text.
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
			return nil, refused("block %q has %d trees, and no slot %d",
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

// part is one call of a script, all or nothing, under a number of its own.
type part struct {
	script string
	shard  int
	argv   []interface{} // behind the fence
	ids    []uint64      // what the rejected of the reply count: anchors, or blocks
	digest string

	seq   uint64
	first time.Time // when it was sent first
	doubt bool      // whether it may have been applied
	reply *Applied  // once it was answered
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

// parts is what is sent: the loose rows of each shard, then its blocks.
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

// sorted gives the loose rows by shard, and the blocks: those that are tracked first.
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

// packed is a block as it is sent, its bytes, and its number.
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
		argv:   []interface{}{[]byte{flags}, named[:], header, slots, deltas, failed},
		size:   9 + len(header) + len(slots) + len(deltas) + len(failed),
		number: number,
	}
}

// packCalls gives the fewest calls that may carry these blocks in this order. A batch has so few
// rows and texts that their other limits hold of themselves.
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
