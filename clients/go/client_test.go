package acker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// fake answers calls as it is told to, one after the other, and then as a Redis that applies all.
type fake struct {
	mu      sync.Mutex
	shards  []string // what status says, the last one for ever
	tick    string
	reshard  bool
	answers []interface{} // for calls of apply: an error, or a reply
	sent    []string      // those calls, in words
}

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
			[]byte("tick_ms"), []byte(f.tick), []byte("high_water"), []byte("100")}
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

func TestALostReplyIsSentAgainUnderTheSameNumber(t *testing.T) {
	in62 := "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write"
	f := &fake{answers: []interface{}{
		io.EOF, redis.Error("TRYAGAIN x"), redis.Error(in62), repeat("1")}}
	got, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7))
	if err != nil || !got.Repeated {
		t.Fatal(got, err)
	}
	same(t, f.sent, 4)
}

func TestAHigherNumberStopsIt(t *testing.T) {
	f := &fake{answers: []interface{}{repeat("2"), repeat("2")}}
	client, batch := begin(t, f, Options{Lanes: 1}), oneRow(t, 7)
	for i := 0; i < 2; i++ {
		if _, err := client.Apply(ctx, batch); Code(err) != CodeLane {
			t.Fatal(err)
		}
	}
	same(t, f.sent, 2)
	// Nobody goes on with that lane.
	if _, err := client.Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	if f.sent[2] == f.sent[0] || !strings.Contains(f.sent[2], `"1:`) {
		t.Errorf("%s after %s", f.sent[2], f.sent[0])
	}
}

func TestWhatIsInDoubtKeepsItsLane(t *testing.T) {
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
		t.Error("a row came into a batch that was sent")
	}
}

func TestPastTheFenceNothingIsSentAgain(t *testing.T) {
	f := &fake{tick: "1", answers: []interface{}{io.EOF, io.EOF}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); Code(err) != CodeLate {
		t.Fatal(err)
	}
	same(t, f.sent, 1)
	// Nor when the same batch is applied again.
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

func TestBacklogIsWaitedForUnderTheSameNumber(t *testing.T) {
	f := &fake{answers: []interface{}{redis.Error("ACKER BACKLOG full")}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	same(t, f.sent, 2)
}

func TestOtherShardsArePackedAnewOnlyIfNothingIsInDoubt(t *testing.T) {
	moved := redis.Error("ACKER SHARD row 0")
	f := &fake{shards: []string{"1", "2"}, answers: []interface{}{moved}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	if len(f.sent) != 2 || !strings.Contains(f.sent[1], "acker:{n:1}") {
		t.Fatal(f.sent)
	}
	f = &fake{shards: []string{"1"}, answers: []interface{}{io.EOF, moved}}
	batch := oneRow(t, 7)
	client := begin(t, f, Options{})
	if _, err := client.Apply(ctx, batch); Code(err) != "SHARD" || !strings.Contains(err.Error(), "give it up") {
		t.Fatal(err)
	}
	same(t, f.sent, 2)
	// While it moves, shard 0 may say the old number: that is waited for.
	f = &fake{shards: []string{"1", "1", "1", "2"}, reshard: true, answers: []interface{}{moved, moved, moved}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
}

func TestAnUnknownScriptIsSentWhole(t *testing.T) {
	f := &fake{answers: []interface{}{redis.Error("NOSCRIPT No matching script")}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
	}
	if len(f.sent) != 2 || !strings.HasPrefix(f.sent[1], `EVAL ["--[[\napply`) {
		t.Fatal(f.sent)
	}
}

func TestARejectedTreeIsToldToItsSourceAlone(t *testing.T) {
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

func TestWhoeverBringsTooMuchWaits(t *testing.T) {
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

func TestWhatWasGivenUpIsToldOnce(t *testing.T) {
	var heard []uint64
	f := &fake{answers: []interface{}{redis.Error("ACKER SCHEMA other")}}
	client := begin(t, f, Options{Linger: time.Hour, OnGivenUp: func(_ error, anchors []uint64) {
		heard = anchors
	}})
	processing, err := client.Process("7:40,8:41")
	if err != nil {
		t.Fatal(err)
	}
	if err := processing.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := processing.Emit(); Code(err) != CodeClosed {
		t.Fatal("it gave out an id behind its row")
	}
	if err := client.Flush(ctx); Code(err) != "SCHEMA" {
		t.Fatal(err)
	}
	if err := client.Flush(ctx); err != nil || len(heard) != 2 {
		t.Fatal(err, heard)
	}
}

func TestOfSeveralThatFlushAtOnceEachIsTold(t *testing.T) {
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
		t.Error("an empty tag is none")
	}
}
