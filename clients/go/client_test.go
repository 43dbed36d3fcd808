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

func ack(ctx context.Context, client *Client, anchor uint64) error {
	work, err := client.Process(fmt.Sprintf("%d:40", anchor))
	if err == nil {
		err = work.Ack(ctx)
	}
	return err
}

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

func TestBatchIsNotAppliedAgainAfterItsFenceExpired(t *testing.T) {
	f := &fake{tick: "1", answers: []interface{}{io.EOF}}
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

func TestBatchWaitsDuringAReshard(t *testing.T) {
	resharded := redis.Error("ACKER SHARD row 0") // shard 0 may still have the old number
	f := &fake{shards: []string{"1", "1", "1", "2"}, reshard: true,
		answers: []interface{}{resharded, resharded, resharded}}
	if _, err := begin(t, f, Options{}).Apply(ctx, oneRow(t, 7)); err != nil {
		t.Fatal(err)
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

func TestRejectionWhoseReplyWasLostIsFound(t *testing.T) {
	gone := []interface{}{int64(0)} // the reply of show about a tree that is not pending
	client := begin(t, &fake{answers: []interface{}{repeat("1"), gone}}, Options{Linger: NoLinger})
	if _, err := client.Track(ctx, "t", "s", 1); Code(err) != CodeRejected {
		t.Fatal(err)
	}
}

func TestFullBufferMakesCallersWait(t *testing.T) {
	f := &fake{}
	client := begin(t, f, Options{Linger: time.Hour, Buffer: 2})
	for anchor := uint64(1); anchor < 3; anchor++ {
		if err := ack(ctx, client, anchor); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := ack(short, client, 3); Code(err) != CodeFull {
		t.Fatal(err)
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ack(ctx, client, 3); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ack(ctx, client, 3); Code(err) != CodeClosed {
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
	if err := ack(ctx, client, 7); err != nil {
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

func TestUnlistedEdgeIsLoggedOnce(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	client := begin(t, &fake{edges: "mill,shop"}, Options{})
	for edge, code := range map[Edge]uint64{"nowhere": 0, "shop": 2} {
		for i := 0; i < 2; i++ {
			ids, err := client.NewIDs(ctx, 1, edge)
			if err != nil || ids[0]>>edgeBit != code {
				t.Fatal(edge, ids, err)
			}
		}
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 {
		t.Errorf("%d lines in the log: %s", lines, logged.String())
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
