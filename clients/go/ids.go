package acker

import (
	"crypto/rand"
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
)

// NewIDs draws count tuple ids, 1 .. 2^63-1, from the system's random source. In a namespace with
// edges use Client.NewIDs.
func NewIDs(count int) ([]uint64, error) { return drawIDs(count, tupleMax) }

func drawIDs(count int, mask uint64) ([]uint64, error) {
	// No pool: a snapshot of the machine would repeat its ids.
	raw := make([]byte, 8*count)
	ids := make([]uint64, count)
	if err := drawInto(raw, ids, mask); err != nil {
		return nil, err
	}
	return ids, nil
}

// NewAnchor draws the anchor of a loose tree, 1 .. 2^62-1.
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
	return refused("the system's random source failed: %v", err)
}

// shape returns a text that may contain ids as errors show it, because errors reach logs, and an id
// is enough to ack its message: # stands for a digit.
func shape(text string) string {
	if len(text) > 50 {
		text = text[:50]
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '#'
		}
		return r
	}, text)
}

// ParseID parses the decimal digits of an id, an anchor or a block's number. It refuses signs and
// numbers of more than 64 bits.
func ParseID(text string) (uint64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, refused("an id is a decimal number without a sign, not %q", shape(text))
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, refused("an id is a decimal number of up to 64 bits, not %q", shape(text))
	}
	return id, nil
}

// BlockAnchor returns the anchor of a tree in a block.
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

// shardOf returns the shard of an anchor; all anchors of a block have one shard.
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
	return refused("an anchor is a number from 1 to 2^62-1, or the anchor of a block's tree, not %d", anchor)
}

func checkTuple(id uint64) error {
	if id-1 < tupleMax {
		return nil
	}
	return refused("a tuple id is a number from 1 to 2^63-1, not %d", id)
}

// xorIDs returns the XOR of distinct ids; two messages with the same id would cancel.
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

func twice() error { return refused("two messages have the same tuple id; draw an id for each") }

// whole returns the delta of a processed message: its id XOR the ids of all messages it caused.
func whole(tuple uint64, emitted []uint64) (uint64, error) {
	if err := checkTuple(tuple); err != nil {
		return 0, err
	}
	for _, id := range emitted {
		if id == tuple {
			return 0, refused("a message and one that it caused have the same id; draw another")
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
		return refused("a %s is 1 to 64 characters of A-Z a-z 0-9 _ . -, not %.70q", kind, name)
	}
	return nil
}

func checkText(kind, text string, least int) error {
	if len(text) < least || len(text) > maxText {
		return refused("a %s has %d to %d bytes, this one %d", kind, least, maxText, len(text))
	}
	for i := 0; i < len(text); i++ {
		if text[i] < 0x20 || text[i] == 0x7f {
			return refused("a %s must not contain control characters: %q", kind, text)
		}
	}
	if !utf8.ValidString(text) {
		return refused("a %s must be valid UTF-8: %q", kind, text)
	}
	return nil
}

// clip returns a text as a why: cut to 255 bytes, with control characters replaced.
func clip(words string) string {
	words = strings.Map(func(c rune) rune {
		if c < 0x20 || c == 0x7f {
			return ' '
		}
		return c // invalid UTF-8 is passed as U+FFFD
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

// idIn is the id of a message in one tree.
type idIn struct{ anchor, tuple uint64 }

// parseMessage parses the ids of a message, <anchor>:<tuple> joined by commas, and orders them by
// anchor.
func parseMessage(text string) ([]idIn, error) {
	if len(text) > maxMessage {
		return nil, refused("the text of a message id has at most %d bytes, not %d", maxMessage, len(text))
	}
	if strings.Trim(text, " \t") == "" {
		return nil, nil
	}
	var ids []idIn
	for _, pair := range strings.Split(text, ",") {
		left, right, found := strings.Cut(strings.Trim(pair, " \t"), ":")
		if !found || len(left) > 19 || len(right) > 19 {
			return nil, refused("an anchored tuple is <anchor>:<tuple>, not %q", shape(pair))
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
			return nil, refused("anchor %d occurs twice in one message id", ids[i].anchor)
		}
	}
	return ids, nil
}

// formatMessage returns the text of ids that are ordered by anchor.
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

// hashOf returns the index of an anchor in a table of size entries, a power of two.
func hashOf(anchor uint64, size int) int {
	return int(anchor * 0x9e3779b97f4a7c15 >> (64 - uint(bits.TrailingZeros(uint(size)))))
}
