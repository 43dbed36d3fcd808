//go:build acker_driver

// Command driver is the driver of this client for tests/languages: see clients/DRIVER.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	acker "acker-redis/clients/go"
)

type request struct {
	Op, Namespace, Task, Producer, Seq, Digest, End, Why, Anchor, Edge string

	Nodes     []string
	Cluster   bool
	TimeoutMs int64  `json:"timeout_ms"`
	RetryMs   int64  `json:"retry_ms"`
	LingerMs  int64  `json:"linger_ms"`
	SourceID  string `json:"source_id"`
	Label     string
	Deltas    []string
	Rows      json.RawMessage
	Inputs    []string
	Edges     []string
	Keys      []*string
	Emit      json.RawMessage
	Flush     bool
	Batch     int
	Lanes     int
	Trees     int
	Blocks    bool
}

type fields struct {
	Anchor, Tuple, Why, Block, Label string

	SourceID string `json:"source_id"`
	Emitted  []string
	Deltas   []string
}

type object = map[string]interface{}

var (
	ctx    = context.Background()
	server acker.Redis
	client *acker.Client
)

func main() {
	lines, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := serve(line)
		if err != nil {
			code := acker.Code(err)
			if code == "" {
				code = "DRIVER"
			}
			answer = object{"error": code, "message": err.Error()}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		out.Write(append(text, '\n'))
		out.Flush()
	}
}

func serve(line []byte) (interface{}, error) {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	switch asked.Op {
	case "connect":
		if server != nil {
			server.Close()
		}
		wait := time.Duration(asked.TimeoutMs) * time.Millisecond
		options := []redis.DialOption{redis.DialConnectTimeout(wait), redis.DialReadTimeout(wait)}
		if asked.Cluster {
			server = acker.DialCluster(asked.Nodes, options...)
		} else {
			server = acker.Dial(asked.Nodes[0], options...)
		}
		return object{}, nil
	case "begin":
		options := acker.Options{
			Linger:   time.Duration(asked.LingerMs) * time.Millisecond,
			RetryFor: time.Duration(asked.RetryMs) * time.Millisecond,
		}
		if asked.RetryMs == 0 {
			options.RetryFor = acker.NoRetry
		}
		if asked.LingerMs == 0 {
			options.Linger = acker.NoLinger
		}
		var err error
		client, err = acker.New(server, asked.Namespace, options)
		return object{}, err
	case "apply":
		return apply(asked)
	case "read", "take":
		outcomes := client.Outcomes(asked.Task)
		entries, err := outcomes.Read(ctx, 64)
		if err == nil && asked.Op == "take" {
			_, err = outcomes.Take(ctx, entries)
		}
		return said(entries), err
	case "track":
		var count int
		if err := json.Unmarshal(asked.Emit, &count); err != nil {
			return nil, err
		}
		tree, err := client.Track(ctx, asked.Task, asked.SourceID, count, acker.Edge(asked.Edge))
		return object{"emitted": tree.Messages}, err
	case "track_block":
		deltas, err := numbers(asked.Deltas)
		if err != nil {
			return nil, err
		}
		block, err := client.TrackBlock(ctx, asked.Task, asked.Label, deltas)
		return object{"block": strconv.FormatUint(block.Number, 10)}, err
	case "work":
		return work(asked)
	case "flush":
		return object{}, client.Flush(ctx)
	case "bench":
		return bench(asked)
	}
	return nil, fmt.Errorf("unknown operation %q", asked.Op)
}

func apply(asked request) (interface{}, error) {
	batch, err := acker.NewBatch(asked.Task)
	if err != nil {
		return nil, err
	}
	var rows []map[string]fields
	if err := json.Unmarshal(asked.Rows, &rows); err != nil {
		return nil, err
	}
	for _, row := range rows {
		for verb, its := range row {
			if err := fold(batch, verb, its); err != nil {
				return nil, err
			}
		}
	}
	seq := uint64(0)
	if asked.Producer != "" {
		if seq, err = acker.ParseID(asked.Seq); err != nil {
			return nil, err
		}
	}
	applied, err := client.ApplyUnder(batch, asked.Producer, seq, asked.Digest)
	return object{
		"tracked": applied.Tracked, "acked": applied.Acked, "failed": applied.Failed,
		"rejected": texts(applied.Rejected), "rejected_blocks": texts(applied.RejectedBlocks),
		"repeated": applied.Repeated,
	}, err
}

func fold(batch *acker.Batch, verb string, its fields) error {
	if verb == "track_block" {
		number, err := acker.ParseID(its.Block)
		if err != nil {
			return err
		}
		deltas, err := numbers(its.Deltas)
		if err != nil {
			return err
		}
		return batch.TrackBlock(number, its.Label, deltas)
	}
	anchor, err := acker.ParseID(its.Anchor)
	if err != nil {
		return err
	}
	emitted, err := numbers(its.Emitted)
	if err != nil {
		return err
	}
	tuple := uint64(0)
	if its.Tuple != "" {
		if tuple, err = acker.ParseID(its.Tuple); err != nil {
			return err
		}
	}
	switch {
	case verb == "track":
		return batch.Track(anchor, its.SourceID, emitted...)
	case verb == "ack":
		return batch.Ack(anchor, tuple, emitted...)
	case verb == "fail" && its.Tuple != "":
		return batch.FailProcessed(anchor, its.Why, tuple, emitted...)
	case verb == "fail":
		return batch.FailDelta(anchor, its.Why, emitted)
	case verb == "touch":
		return batch.Touch(anchor)
	}
	return fmt.Errorf("unknown row %q", verb)
}

func work(asked request) (interface{}, error) {
	var emit [][]int
	if err := json.Unmarshal(asked.Emit, &emit); err != nil {
		return nil, err
	}
	processing, err := client.Process(asked.Inputs...)
	if err != nil {
		return nil, err
	}
	emitted := make([]string, len(emit))
	for i, places := range emit {
		var options []acker.EmitOption
		if asked.Edges != nil {
			options = append(options, acker.Edge(asked.Edges[i]))
		}
		if asked.Keys != nil && asked.Keys[i] != nil {
			options = append(options, acker.Key(*asked.Keys[i]))
		}
		if emitted[i], err = processing.EmitFrom(places, options...); err != nil {
			return nil, err
		}
	}
	switch asked.End {
	case "ack":
		err = processing.Ack(ctx)
	case "fail":
		err = processing.Fail(ctx, asked.Why)
	case "touch":
		err = processing.Touch(ctx)
	case "late":
		if err = processing.Ack(ctx); err == nil {
			_, err = processing.EmitFrom([]int{0})
		}
	}
	if err == nil && asked.Flush {
		err = client.Flush(ctx)
	}
	return object{"emitted": emitted}, err
}

func bench(asked request) (interface{}, error) {
	var count int
	if err := json.Unmarshal(bytes.TrimSpace(asked.Rows), &count); err != nil {
		return nil, err
	}
	anchors := make([]uint64, asked.Trees)
	deltas, err := acker.NewIDs(len(anchors))
	if err != nil {
		return nil, err
	}
	name := strconv.FormatUint(deltas[0], 10)
	tracking := time.Now()
	for first := 0; first < len(anchors); first += asked.Batch {
		if asked.Blocks {
			last := first + asked.Batch
			if last > len(anchors) {
				last = len(anchors)
			}
			label := fmt.Sprintf("bench %s %d", name, first)
			block, err := client.TrackBlock(ctx, "bench", label, deltas[first:last])
			if err != nil {
				return nil, err
			}
			for i := first; i < last; i++ {
				anchors[i] = block.Anchor(i - first)
			}
			continue
		}
		batch, err := acker.NewBatch("bench")
		if err != nil {
			return nil, err
		}
		for i := first; i < first+asked.Batch && i < len(anchors); i++ {
			if anchors[i], err = acker.NewAnchor(); err != nil {
				return nil, err
			}
			if err := batch.Track(anchors[i], "bench", deltas[i]); err != nil {
				return nil, err
			}
		}
		if _, err := client.Apply(ctx, batch); err != nil {
			return nil, err
		}
	}
	tracked := time.Since(tracking).Seconds()
	ids, err := acker.NewIDs(2 * count)
	if err != nil {
		return nil, err
	}
	var next int64
	var lanes sync.WaitGroup
	failed := make([]error, asked.Lanes)
	begun := time.Now()
	for lane := range failed {
		lanes.Add(1)
		go func(lane int) {
			defer lanes.Done()
			for {
				last := int(atomic.AddInt64(&next, int64(asked.Batch)))
				first := last - asked.Batch
				if first >= count {
					return
				}
				batch, _ := acker.NewBatch("")
				for i := first; i < last && i < count; i++ {
					err := batch.Ack(anchors[i%len(anchors)], ids[2*i], ids[2*i+1])
					if err != nil {
						failed[lane] = err
						return
					}
				}
				if _, failed[lane] = client.Apply(ctx, batch); failed[lane] != nil {
					return
				}
			}
		}(lane)
	}
	lanes.Wait()
	seconds := time.Since(begun).Seconds()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return object{"rows": count, "seconds": seconds, "tracking": tracked}, nil
}

func numbers(texts []string) ([]uint64, error) {
	found := make([]uint64, len(texts))
	for i, text := range texts {
		var err error
		if found[i], err = acker.ParseID(text); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func texts(ids []uint64) []string {
	found := make([]string, len(ids))
	for i, id := range ids {
		found[i] = strconv.FormatUint(id, 10)
	}
	return found
}

func said(entries []acker.Entry) object {
	found := []interface{}{}
	for _, entry := range entries {
		for _, one := range entry.Outcomes {
			anchor := strconv.FormatUint(one.Anchor, 10)
			residual := ""
			if one.Cause != "" {
				residual = fmt.Sprintf("%016x", one.Residual)
			}
			found = append(found, []interface{}{
				one.Verdict, one.Reason, anchor, one.SourceID, one.Why, one.AgeMs,
				one.Cause, residual, one.IdleMs, append([]string{}, one.Edges...),
			})
		}
	}
	return object{"outcomes": found}
}
