package acker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log"
	"strconv"
	"strings"
	"sync"
)

const maxWarnings = 1000

// Edge is the name of the way that a message travels on, mostly a queue. It is an option of Track and
// Emit: the outcome of a tree that expired names the edges on which messages are missing. Edge("")
// stands for no edge, like a name that the namespace does not list, of which the log warns once.
type Edge string

// Key is an option of Emit. It makes the id of a message deterministic: when the same messages are
// delivered and processed again, the message with this key has the same id. The key must identify the
// message among those of one Processing, for example by its destination.
type Key string

// TrackOption is an option of Track: an Edge.
type TrackOption interface{ toTrack(*emission) }

// EmitOption is an option of Emit and EmitFrom: an Edge or a Key.
type EmitOption interface{ toEmit(*emission) }

type emission struct {
	edge Edge
	key  *string // nil: the id is random
}

func (e Edge) toTrack(to *emission) { to.edge = e }
func (e Edge) toEmit(to *emission)  { to.edge = e }
func (k Key) toEmit(to *emission) {
	text := string(k)
	to.key = &text
}

// NewIDs draws count tuple ids of messages on an edge, for a Batch or a block that the program fills.
func (c *Client) NewIDs(ctx context.Context, count int, edge Edge) ([]uint64, error) {
	config, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	code := config.ids.code(edge)
	ids, err := config.ids.draw(count)
	for i := range ids {
		ids[i] |= code
	}
	return ids, err
}

// idMaker makes the tuple ids of a namespace as its edges and its salt ask for.
type idMaker struct {
	edges    []string
	salt     *string // a secret; package fmt prints only the address of a pointer inside a struct. nil: unknown
	unlisted *unlisted
}

// unlisted holds the names of unlisted edges that a Client has already logged.
type unlisted struct {
	mu    sync.Mutex
	names map[Edge]struct{}
}

// low returns the mask of the bits of an id that are random or derived.
func (m *idMaker) low() uint64 {
	if len(m.edges) > 0 || m.salt == nil {
		return 1<<edgeBit - 1
	}
	return tupleMax
}

// code returns the bit of an edge in the ids of its messages; 0 for "" and for an unlisted edge.
func (m *idMaker) code(edge Edge) uint64 {
	if edge == "" || m.salt == nil {
		return 0
	}
	for k, name := range m.edges {
		if name == string(edge) {
			return 1 << (edgeBit + uint(k))
		}
	}
	m.unlisted.mu.Lock()
	defer m.unlisted.mu.Unlock()
	if _, known := m.unlisted.names[edge]; !known && len(m.unlisted.names) < maxWarnings {
		m.unlisted.names[edge] = struct{}{}
		listed := strings.Join(m.edges, ", ")
		if listed == "" {
			listed = "none"
		}
		log.Printf("acker: the namespace does not list edge %q (it lists %s): verdicts cannot name it",
			string(edge), listed)
	}
	return 0
}

// edgesOf returns the edges on which an odd number of messages is outstanding, by a residual.
func (m *idMaker) edgesOf(residual uint64) []string {
	var found []string
	for k, name := range m.edges {
		if residual>>(edgeBit+uint(k))&1 != 0 {
			found = append(found, name)
		}
	}
	return found
}

// draw returns random ids without a code.
func (m *idMaker) draw(count int) ([]uint64, error) { return drawIDs(count, m.low()) }

// derive returns 64 bits that depend on the salt, the purpose and the parts only.
func (m *idMaker) derive(purpose string, parts ...string) uint64 {
	hash := sha256.New()
	for _, part := range append([]string{*m.salt, purpose}, parts...) {
		hash.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return binary.BigEndian.Uint64(hash.Sum(nil))
}

// child derives an edge id, without a code.
func (m *idMaker) child(parts ...string) uint64 {
	number := m.derive("child", parts...)
	if len(m.edges) > 0 {
		return number >> 9
	}
	return number >> 1
}

// block derives the number of a block.
func (m *idMaker) block(task, label string) uint64 { return m.derive("block", task, label) >> 14 }
