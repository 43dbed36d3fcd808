package acker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	anchorMax = 1<<62 - 1
	tupleMax  = 1<<63 - 1
	blockMax  = 1<<50 - 1
	maxSlots  = 4095
	maxText   = 255
	maxTrees  = 1638
	maxID     = 64 * 1024
)

// NewIDs draws tuple ids, 1 .. 2^63-1, from the system's random source.
func NewIDs(count int) ([]uint64, error) {
	// Not from a pool: a copy of the machine would draw the same again.
	raw := make([]byte, 8*count)
	ids := make([]uint64, count)
	if err := drawInto(raw, ids, tupleMax); err != nil {
		return nil, err
	}
	return ids, nil
}

// NewAnchor draws an anchor of a loose tree, 1 .. 2^62-1.
func NewAnchor() (uint64, error) {
	var raw [8]byte
	var one [1]uint64
	err := drawInto(raw[:], one[:], anchorMax)
	return one[0], err
}

func drawInto(raw []byte, ids []uint64, mask uint64) error {
	for i := range ids {
		if i == 0 {
			if _, err := rand.Read(raw); err != nil {
				return noRandom(err)
			}
		}
		its := raw[8*i : 8*i+8]
		for ids[i] = binary.BigEndian.Uint64(its) & mask; ids[i] == 0; {
			if _, err := rand.Read(its); err != nil {
				return noRandom(err)
			}
			ids[i] = binary.BigEndian.Uint64(its) & mask
		}
	}
	return nil
}

func noRandom(err error) error {
	return refused("the system's random source does not answer: %v", err)
}

// ParseID reads decimal digits: of an id, an anchor, a number of a block. It refuses what 64 bits
// do not hold, and signs.
func ParseID(text string) (uint64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, refused("an id is decimal digits, not %.50q", text)
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, refused("an id is a number of 64 bits, not %.50q", text)
	}
	return id, nil
}

// BlockNumber is the number of a block from its source's own identity: the same parts, the same
// number.
func BlockNumber(identity ...string) uint64 {
	hash := sha256.New()
	for _, part := range identity {
		hash.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return binary.BigEndian.Uint64(hash.Sum(nil)) >> 14
}

// BlockAnchor is the anchor of a tree in a block.
func BlockAnchor(block uint64, slot int) (uint64, error) {
	if block > blockMax {
		return 0, refused("a block is a number from 0 to 2^50-1, not %d", block)
	}
	if slot < 0 || slot >= maxSlots {
		return 0, refused("a slot is a number from 0 to %d, not %d", maxSlots-1, slot)
	}
	return 1<<62 | block<<12 | uint64(slot), nil
}

func blockOf(anchor uint64) uint64 { return anchor >> 12 & blockMax }
func slotOf(anchor uint64) int     { return int(anchor & 0xfff) }

// shardOf is the shard of an anchor; of a block, for all of its anchors.
func shardOf(anchor uint64, shards int) int {
	if anchor > anchorMax {
		anchor >>= 12
	}
	return int(anchor & uint64(shards-1))
}

func checkAnchor(anchor uint64) error {
	if anchor-1 < anchorMax || anchor>>62 == 1 && anchor&0xfff < maxSlots {
		return nil
	}
	return refused("an anchor is 1 to 2^62-1, or one of a block's %d slots, not %d", maxSlots, anchor)
}

func checkTuple(id uint64) error {
	if id-1 < tupleMax {
		return nil
	}
	return refused("a tuple id is a number from 1 to 2^63-1, not %d", id)
}

// xorIDs is the XOR of distinct ids; two messages with one id would cancel.
func xorIDs(ids []uint64) (uint64, error) {
	delta := uint64(0)
	for i, id := range ids {
		if err := checkTuple(id); err != nil {
			return 0, err
		}
		delta ^= id
		if len(ids) > 16 {
			continue
		}
		for _, other := range ids[:i] {
			if other == id {
				return 0, twice()
			}
		}
	}
	if len(ids) > 16 {
		seen := make(map[uint64]struct{}, len(ids))
		for _, id := range ids {
			seen[id] = struct{}{}
		}
		if len(seen) < len(ids) {
			return 0, twice()
		}
	}
	return delta, nil
}

func twice() error { return refused("two messages have one tuple id; draw an id for each") }

// whole is the delta of a message that was processed: its id XOR the ids of all that it caused.
func whole(tuple uint64, emitted []uint64) (uint64, error) {
	if err := checkTuple(tuple); err != nil {
		return 0, err
	}
	for _, id := range emitted {
		if id == tuple {
			return 0, refused("a message cannot have the id of one that it caused; draw another")
		}
	}
	delta, err := xorIDs(emitted)
	return delta ^ tuple, err
}

func checkName(kind, name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '.' || c == '-'
	}
	if !ok {
		return refused("a %s is 1 to 64 of A-Z a-z 0-9 _ . -, not %.70q", kind, name)
	}
	return nil
}

func checkText(kind, text string, least int) error {
	if len(text) < least || len(text) > maxText {
		return refused("a %s has %d to %d bytes, this one %d", kind, least, maxText, len(text))
	}
	for i := 0; i < len(text); i++ {
		if text[i] < 0x20 || text[i] == 0x7f {
			return refused("a %s has no control characters: %q", kind, text)
		}
	}
	if !utf8.ValidString(text) {
		return refused("a %s is UTF-8: %q", kind, text)
	}
	return nil
}

// clip makes words for people such as a row can hold.
func clip(words string) string {
	words = strings.Map(func(c rune) rune {
		if c < 0x20 || c == 0x7f {
			return ' '
		}
		return c // what is not UTF-8 comes as U+FFFD
	}, words)
	if len(words) <= maxText {
		return words
	}
	end := maxText
	for !utf8.RuneStart(words[end]) {
		end--
	}
	return words[:end]
}

// idIn is a message's id in one tree.
type idIn struct{ anchor, tuple uint64 }

// parseMessage reads a message's ids, ordered by anchor, from its text: <anchor>:<tuple>, joined by
// commas.
func parseMessage(text string) ([]idIn, error) {
	if len(text) > maxID {
		return nil, refused("the id of a message has at most %d bytes", maxID)
	}
	if strings.Trim(text, " \t") == "" {
		return nil, nil
	}
	var ids []idIn
	for _, pair := range strings.Split(text, ",") {
		left, right, found := strings.Cut(strings.Trim(pair, " \t"), ":")
		if !found || len(left) > 19 || len(right) > 19 {
			return nil, refused("an anchored tuple is <anchor>:<tuple>, not %.50q", pair)
		}
		anchor, err := ParseID(left)
		if err == nil {
			err = checkAnchor(anchor)
		}
		if err != nil {
			return nil, err
		}
		tuple, err := ParseID(right)
		if err == nil {
			err = checkTuple(tuple)
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, idIn{anchor, tuple})
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i].anchor < ids[j].anchor })
	for i := 1; i < len(ids); i++ {
		if ids[i].anchor == ids[i-1].anchor {
			return nil, refused("anchor %d is there twice", ids[i].anchor)
		}
	}
	return ids, nil
}

// formatMessage writes ids that are ordered by anchor.
func formatMessage(ids []idIn) string {
	text := make([]byte, 0, 40*len(ids))
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, id.anchor, 10)
		text = append(text, ':')
		text = strconv.AppendUint(text, id.tuple, 10)
	}
	return string(text)
}

// hashOf spreads anchors over a table of 2^n places.
func hashOf(anchor uint64, size int) int {
	return int(anchor * 0x9e3779b97f4a7c15 >> (64 - uint(bits.TrailingZeros(uint(size)))))
}
