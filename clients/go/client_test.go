package acker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// fake returns the given answers in order, and after them the replies of a Redis that applies all.
type fake struct {
	mu      sync.Mutex
	shards  []string // number of shards in the replies of status; the last one repeats
	tick    string
	edges   string
	reshard bool
	answers []interface{} // answers to apply: an error, or a reply
	sent    []string      // the calls of apply as text
}

const salt = "00112233445566778899aabbccddeeff"

func (f *fake) Close() error { return nil }

func (f *fake) Do(key, command string, args ...interface{}) (interface{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := args[0].(string)
	if text == scripts["status"].sha {
		shards := f.shards[0]
		if len(f.shards) > 1 {
			f.shards = f.shards[1:]
		}
		meta := []interface{}{[]byte("shards"), []byte(shards), []byte("buckets"), []byte("3"),
			[]byte("tick_ms"), []byte(f.tick), []byte("high_water"), []byte("100"),
			[]byte("edges"), []byte(f.edges), []byte("salt"), []byte(salt)}
		if f.reshard {
			meta = append(meta, []byte("reshard"), []byte("1:2"))
		}
		return []interface{}{int64(1), nil, int64(0), nil, int64(0), meta}, nil
	}
	f.sent = append(f.sent, fmt.Sprintf("%s %q", command, args))
	if len(f.answers) > 0 {
		next := f.answers[0]
		f.answers = f.answers[1:]
		if err, bad := next.(error); bad {
			return nil, err
		}
		return next, nil
	}
	return applied(), nil
}

func applied() interface{} {
	return []interface{}{int64(1), int64(0), int64(1), int64(0), []byte(""), int64(0), int64(9), []byte("")}
}

func repeat(highest string) interface{} { return []interface{}{int64(0), []byte(highest)} }

func begin(t *testing.T, f *fake, options Options) *Client {
	t.Helper()
	if f.shards == nil {
		f.shards = []string{"1"}
	}
	if f.tick == "" {
		f.tick = "3600000"
	}
	client, err := New(f, "n", options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func oneRow(t *testing.T, anchor uint64) *Batch {
	t.Helper()
	batch, err := NewBatch("")
	if err == nil {
		err = batch.Ack(anchor, 40, 41)
	}
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

var ctx = context.Background()

func same(t *testing.T, sent []string, count int) {
	t.Helper()
	if len(sent) != count {
		t.Fatalf("%d calls, not %d: %s", len(sent), count, sent)
	}
	for _, one := range sent[1:] {
		if one != sent[0] {
			t.Errorf("%s is not %s", one, sent[0])
		}
	}
}

func TestLostReplyIsRetriedUnderTheSameNumber(t *testing.T) {
	in62 := "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write"
	f := &fake{answers: []interface{}{
		io.EOF, redis.Error("TRYAGAIN x"), redis.Error(in62), repeat("1")}}
	got, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7))
	if err != nil || !got.Repeated {
		t.Fatal(got, err)
	}
	same(t, f.sent, 4)
}

func TestHigherNumberInTheReplyIsALaneError(t *testing.T) {
	f := &fake{answers: []interface{}{repeat("2"), repeat("2")}}
	client, batch := begin(t, f, Options{Lanes: 1}), oneRow(t, 7)
	for i := 0; i < 2; i++ {
		if _, err := client.Apply(ctx, batch); Code(err) != CodeLane {
			t.Fatal(err)
		}
	}
	same(t, f.sent, 2)
	// The lane is not used again.
	if _, err := client.Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	if f.sent[2] == f.sent[0] || !strings.Contains(f.sent[2], `"1:`) {
		t.Errorf("%s after %s", f.sent[2], f.sent[0])
	}
}

func TestBatchInDoubtKeepsItsLane(t *testing.T) {
	f := &fake{answers: []interface{}{io.EOF}}
	client, doubt := begin(t, f, Options{Lanes: 1, RetryFor: NoRetry}), oneRow(t, 7)
	if _, err := client.Apply(ctx, doubt); Code(err) != CodeUnavailable || !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := client.Apply(ctx, oneRow(t, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Apply(ctx, doubt); err != nil {
		t.Fatal(err)
	}
	same(t, []string{f.sent[0], f.sent[2]}, 2)
	if err := doubt.Ack(9, 1); Code(err) != CodeRefused {
		t.Error("a sent batch accepted a row")
	}
}

func TestBatchIsNotRetriedAfterItsFenceExpired(t *testing.T) {
	f := &fake{tick: "1", answers: []interface{}{io.EOF, io.EOF}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); Code(err) != CodeLate {
		t.Fatal(err)
	}
	same(t, f.sent, 1)
	// The same holds when the program applies the batch again.
	f = &fake{tick: "1", answers: []interface{}{io.EOF}}
	client, batch := begin(t, f, Options{RetryFor: NoRetry}), oneRow(t, 7)
	if _, err := client.Apply(ctx, batch); Code(err) != CodeUnavailable {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	if _, err := client.Apply(ctx, batch); Code(err) != CodeLate {
		t.Fatal(err)
	}
	same(t, f.sent, 1)
}

func TestBacklogIsRetriedUnderTheSameNumber(t *testing.T) {
	f := &fake{answers: []interface{}{redis.Error("ACKER BACKLOG full")}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	same(t, f.sent, 2)
}

func TestBatchIsRepackedForOtherShardsOnlyIfNothingIsInDoubt(t *testing.T) {
	resharded := redis.Error("ACKER SHARD row 0")
	f := &fake{shards: []string{"1", "2"}, answers: []interface{}{resharded}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	if len(f.sent) != 2 || !strings.Contains(f.sent[1], "acker:{n:1}") {
		t.Fatal(f.sent)
	}
	f = &fake{shards: []string{"1"}, answers: []interface{}{io.EOF, resharded}}
	batch := oneRow(t, 7)
	client := begin(t, f, Options{})
	if _, err := client.Apply(ctx, batch); Code(err) != "SHARD" || !strings.Contains(err.Error(), "give it up") {
		t.Fatal(err)
	}
	same(t, f.sent, 2)
	// During a reshard shard 0 may still have the old number: the client waits.
	f = &fake{shards: []string{"1", "1", "1", "2"}, reshard: true,
		answers: []interface{}{resharded, resharded, resharded}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownScriptIsSentByEval(t *testing.T) {
	f := &fake{answers: []interface{}{redis.Error("NOSCRIPT No matching script")}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	if len(f.sent) != 2 || !strings.HasPrefix(f.sent[1], `EVAL ["--[[\napply`) {
		t.Fatal(f.sent)
	}
}

func TestRejectedTreeIsReportedOnlyToItsSource(t *testing.T) {
	f := &fake{answers: []interface{}{[]interface{}{int64(1), int64(1), int64(0), int64(0),
		[]byte("\x00\x00"), int64(9), int64(9), []byte("\x00\x00")}}}
	client := begin(t, f, Options{Linger: time.Hour})
	if _, err := client.Track(ctx, "t", "s", 1); Code(err) != CodeRejected {
		t.Fatal(err)
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestFullBufferMakesCallersWait(t *testing.T) {
	f := &fake{}
	client := begin(t, f, Options{Linger: time.Hour, Buffer: 2})
	for anchor := uint64(1); anchor < 3; anchor++ {
		if err := client.Ack(ctx, anchor, 40); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := client.Ack(short, 3, 40); Code(err) != CodeFull {
		t.Fatal(err)
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.Ack(ctx, 3, 40); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.Ack(ctx, 3, 40); Code(err) != CodeClosed {
		t.Fatal(err)
	}
	if len(f.sent) != 2 {
		t.Fatal(f.sent)
	}
}

func TestGivenUpRowsAreReportedOnce(t *testing.T) {
	var reported []uint64
	f := &fake{answers: []interface{}{redis.Error("ACKER SCHEMA other")}}
	client := begin(t, f, Options{Linger: time.Hour, OnGivenUp: func(_ error, anchors []uint64) {
		reported = anchors
	}})
	processing, err := client.Process("7:40,8:41")
	if err != nil {
		t.Fatal(err)
	}
	if err := processing.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := processing.Emit(); Code(err) != CodeClosed {
		t.Fatal("Emit returned an id after the ack")
	}
	if err := client.Flush(ctx); Code(err) != "SCHEMA" {
		t.Fatal(err)
	}
	if err := client.Flush(ctx); err != nil || len(reported) != 2 {
		t.Fatal(err, reported)
	}
}

func TestConcurrentFlushesAllReturnTheError(t *testing.T) {
	f := &fake{answers: []interface{}{redis.Error("ACKER SCHEMA other")}}
	client := begin(t, f, Options{Linger: time.Hour})
	if err := client.Ack(ctx, 7, 40); err != nil {
		t.Fatal(err)
	}
	first, second := client.hurried(), client.hurried()
	for _, all := range [][]*gathered{first, second} {
		if err := client.settled(ctx, all); Code(err) != "SCHEMA" {
			t.Fatal(err)
		}
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestSlots(t *testing.T) {
	for key, slot := range map[string]int{"123456789": 12739, "acker:{123456789}:meta": 12739, "{}a": SlotOf("{}a")} {
		if SlotOf(key) != slot {
			t.Errorf("slot of %s is %d, not %d", key, SlotOf(key), slot)
		}
	}
	if SlotOf("{}a") == SlotOf("") {
		t.Error("an empty hash tag must be ignored")
	}
}

func TestIDsCarryTheBitOfTheirEdge(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	client := begin(t, &fake{edges: "mill,shop"}, Options{})
	tree, err := client.Track(ctx, "t", "s", 2, Edge("shop"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := client.Process(tree.Messages...)
	if err != nil {
		t.Fatal(err)
	}
	before := work.rows[0].tuple
	for i, edge := range []Edge{"mill", "", "nowhere", "nowhere"} {
		text, err := work.Emit(edge)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := parseMessage(text)
		if err != nil {
			t.Fatal(err)
		}
		if code := []uint64{1, 0, 0, 0}[i]; len(ids) != 1 || ids[0].tuple>>edgeBit != code {
			t.Errorf("%s of edge %q does not have code %d", text, edge, code)
		}
		before ^= ids[0].tuple
	}
	if work.rows[0].tuple != before {
		t.Error("the row is not the XOR of the ids")
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 {
		t.Errorf("%d lines in the log: %s", lines, logged.String())
	}
	ids, err := client.NewIDs(ctx, 100, "mill")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id>>edgeBit != 1 || id&(1<<edgeBit-1) == 0 {
			t.Errorf("%x is not an id of the first edge", id)
		}
	}
}

func TestKeyMakesTheIDDeterministic(t *testing.T) {
	const hashed = 3113856314616919984 // the first 8 bytes of the hash, by the Python client
	for edges, shift := range map[string]uint{"": 1, "mill": 9} {
		client := begin(t, &fake{edges: edges}, Options{})
		work, err := client.Process("7:40", "")
		if err != nil {
			t.Fatal(err)
		}
		text, err := work.Emit(Key("mill №2"))
		if want := fmt.Sprintf("7:%d", hashed>>shift); err != nil || text != want {
			t.Fatal(text, want, err)
		}
		before := work.rows[0]
		if _, err := work.Emit(Key("mill №2")); Code(err) != CodeRefused || work.rows[0] != before {
			t.Fatal(err)
		}
		if _, err := work.EmitFrom([]int{0, 0}); Code(err) != CodeRefused {
			t.Fatal(err)
		}
	}
}

func TestSaltIsNotPrinted(t *testing.T) {
	client := begin(t, &fake{}, Options{})
	config, err := client.known(ctx)
	if err != nil {
		t.Fatal(err)
	}
	work, err := client.Process("7:40")
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []interface{}{client, work, config, config.ids, *config, *config.ids} {
		if text := fmt.Sprintf("%v %+v %#v", shown, shown, shown); strings.Contains(text, salt) {
			t.Error(text)
		}
	}
}

// expiredBlock returns the entry of a block of ten slots: slot 1 failed before, slots 2 to 7 hold no
// tree, slots 0 and 9 expired, slot 8 is complete.
func expiredBlock() map[string]string {
	return map[string]string{"verdict": "mixed", "reason": "expired", "n": "3", "block": "0000000000001",
		"label": "page", "age": "9", "cause": "deadline", "idle": "5", "slots": "10", "failed": "4000",
		"nacked": "8040", "present": "c0C0", "residuals": "01800000000000010000000000000000"}
}

func readFields(fields map[string]string, ids *idMaker) ([]Outcome, error) {
	flat := []interface{}{}
	for name, text := range fields {
		flat = append(flat, []byte(name), []byte(text))
	}
	entry, err := readEntry(0, []interface{}{[]byte("1-0"), flat}, ids)
	return entry.Outcomes, err
}

func TestOutcomesOfExpiredBlocksHaveResiduals(t *testing.T) {
	found, err := readFields(expiredBlock(), &idMaker{edges: []string{"mill", "shop"}})
	if err != nil || len(found) != 3 {
		t.Fatal(found, err)
	}
	first, whole, lost := found[0], found[1], found[2]
	if first.Residual != 3<<edgeBit|1 || fmt.Sprint(first.Edges) != "[mill shop]" || first.IdleMs != 5 {
		t.Error(first)
	}
	if whole.Verdict != "ack" || whole.Cause != "" || whole.IdleMs != 0 || whole.Edges != nil || whole.Slot() != 8 {
		t.Error(whole)
	}
	if lost.Cause != "deadline" || lost.Residual != 0 || lost.Edges != nil || lost.Slot() != 9 {
		t.Error(lost)
	}
}

func TestMalformedEntryOfABlockIsAnError(t *testing.T) {
	for name, texts := range map[string][]string{
		"failed":    {"", "4", "40", "400", "400000", "4g00", "4001", "-"},
		"nacked":    {"", "8", "80", "804", "804000", "80g0", "8041", "-"},
		"present":   {"", "c", "c0", "c0c000", "c0g0", "c0c1", "-"},
		"residuals": {"", "0180000000000001", "018000000000000100000000000000000", "-"},
		"slots":     {"", "0", "-1", "8", "17", "4096", "-"},
		"idle":      {"", "-"},
		"n":         {"", "2", "4", "-"},
	} {
		for _, text := range texts {
			fields := expiredBlock()
			if fields[name] = text; text == "-" {
				delete(fields, name)
			}
			if found, err := readFields(fields, &idMaker{}); Code(err) != "SCHEMA" {
				t.Errorf("%s %q was read as %v, %v", name, text, found, err)
			}
		}
	}
}

func TestShowReadsBitmaps(t *testing.T) {
	const block = 1<<62 | 1<<12
	record := append(make([]byte, 21), "\x01tpage"...)
	record[12] = 3
	sums := make([]byte, 24)
	show := func(slot uint64, failed, present string) (*TreeState, error) {
		record[10] = 0
		if present != "" {
			record[10] = 2
		}
		reply := []interface{}{int64(0), int64(0), record, sums, []byte(failed), []byte(present)}
		return readTree(reply, block|slot, 3)
	}
	for slot, failed := range []bool{false, true, false} {
		tree, err := show(uint64(slot), "\x40", "")
		if err != nil || tree.Failed != failed || tree.Why != "" || tree.SourceID != "page" {
			t.Error(tree, err)
		}
		if tree, err := show(uint64(slot), "", "\xa0"); err != nil || (tree == nil) != (slot == 1) {
			t.Error(tree, err)
		}
	}
	if tree, err := show(3, "", ""); tree != nil || err != nil {
		t.Error(tree, err)
	}
	for _, wrong := range []string{"\x40\x00", "\x10"} {
		if tree, err := show(0, wrong, ""); err == nil {
			t.Errorf("%q: %v", wrong, tree)
		}
		if tree, err := show(0, "", wrong); err == nil {
			t.Errorf("%q: %v", wrong, tree)
		}
	}
	record[10] = 6 // some slots are absent, and some trees have failed
	for _, wrong := range []string{"", "\x00", "\x40"} {
		reply := []interface{}{int64(0), int64(0), record, sums, []byte(wrong), []byte("\xa0")}
		if tree, err := readTree(reply, block, 3); Code(err) != "SCHEMA" {
			t.Errorf("%q: %v %v", wrong, tree, err)
		}
	}
	record[10] = 2 // some slots are absent, and their bitmap is lost
	reply := []interface{}{int64(0), int64(0), record, sums, []byte(""), []byte("")}
	if tree, err := readTree(reply, block, 3); err == nil {
		t.Error(tree)
	}
	record[10], reply[3] = 0, sums[:16]
	if tree, err := readTree(reply, block, 3); err == nil {
		t.Error(tree)
	}
}

func TestNumberOfABlockIsDerivedFromTheSalt(t *testing.T) {
	client := begin(t, &fake{}, Options{})
	block, err := client.TrackBlock(ctx, "shop", "page №2", []uint64{1, 0})
	if err != nil || block.Number != 21059389260447 { // by the Python client
		t.Fatal(block, err)
	}
}

func TestLabelsOfSparkAreRefusedBeforeAnyCall(t *testing.T) {
	f := &fake{shards: []string{"1", "other"}}
	client := begin(t, f, Options{})
	for _, label := range []string{"orders/3@1000", "@0", "p@7~2", "\u2028@9223372036854775807~9999999999"} {
		if _, err := client.TrackBlock(ctx, "shop", label, []uint64{1}); Code(err) != CodeRefused {
			t.Errorf("%s: %v", label, err)
		}
	}
	if len(f.shards) != 2 || f.sent != nil {
		t.Error("a call was sent")
	}
}
