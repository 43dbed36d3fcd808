package acker

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Redis is the connection to one Redis or to a cluster. Do sends one command, once, to the node that
// serves the slot of a key, and returns its reply as redigo does. It must be safe for concurrent use.
type Redis interface {
	Do(key, command string, args ...interface{}) (interface{}, error)
	Close() error
}

// Timeout is the default timeout of Dial and DialCluster for a connection and for a reply. (redigo
// itself has no default timeout for a reply.)
const Timeout = 5 * time.Second

// Dial returns a Redis for host:port or the path of a socket. It sends nothing.
func Dial(address string, options ...redis.DialOption) Redis {
	renew := func() *redis.Pool { return newPool(address, options) }
	return &one{pool: renew(), renew: renew}
}

// FromPool returns a Redis for a pool of the caller. Its connections need redis.DialReadTimeout:
// without it a call whose reply is lost waits forever.
func FromPool(pool *redis.Pool) Redis { return &one{pool: pool} }

type one struct {
	renew func() *redis.Pool // nil: the pool belongs to the caller

	mu   sync.Mutex
	pool *redis.Pool
}

func (o *one) Do(_, command string, args ...interface{}) (interface{}, error) {
	pool := o.current()
	conn := pool.Get()
	defer conn.Close()
	reply, err := conn.Do(command, args...)
	if isDemoted(err) {
		o.leave(pool, conn)
	}
	return reply, err
}

func (o *one) Close() error { return o.current().Close() }

func (o *one) current() *redis.Pool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pool
}

// leave connects again: the address may lead to another master by now, and only a new connection
// detects that. redigo itself reuses each connection that has answered.
func (o *one) leave(pool *redis.Pool, conn redis.Conn) {
	if o.renew == nil {
		// Drop only this connection of the caller's pool: a receive without a reply times out, and a
		// pool closes a connection that has failed.
		redis.ReceiveWithTimeout(conn, time.Nanosecond)
		return
	}
	o.mu.Lock()
	if o.pool == pool {
		o.pool = o.renew()
	}
	o.mu.Unlock()
	pool.Close() // connections in use are closed when they are returned
}

func newPool(address string, options []redis.DialOption) *redis.Pool {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	all := append([]redis.DialOption{redis.DialConnectTimeout(Timeout),
		redis.DialReadTimeout(Timeout), redis.DialWriteTimeout(Timeout)}, options...)
	return &redis.Pool{
		MaxIdle:     16,
		IdleTimeout: time.Minute,
		Dial:        func() (redis.Conn, error) { return redis.Dial(network, address, all...) },
	}
}

const (
	slotCount = 16384
	maxHops   = 8
)

// Cluster is a Redis Cluster. It finds the node of a slot and follows MOVED and ASK, which mean that
// the command did not run. TRYAGAIN and CLUSTERDOWN are errors, after which a Client retries.
type Cluster struct {
	seeds   []string
	options []redis.DialOption

	mu    sync.Mutex
	pools map[string]*redis.Pool
	slots [slotCount]string
	stale bool
}

// DialCluster returns a Cluster, given at least one of its nodes. It sends nothing.
func DialCluster(nodes []string, options ...redis.DialOption) *Cluster {
	return &Cluster{seeds: nodes, options: options, pools: map[string]*redis.Pool{}, stale: true}
}

// Do sends a command to the node that serves the slot of a key.
func (c *Cluster) Do(key, command string, args ...interface{}) (interface{}, error) {
	slot := SlotOf(key)
	address, err := c.node(slot)
	asking := false
	for hop := 0; err == nil && hop < maxHops; hop++ {
		var reply interface{}
		reply, err = c.ask(address, asking, command, args)
		var said redis.Error
		if err == nil || !errors.As(err, &said) {
			if err != nil {
				c.forget() // the node may have failed over
			}
			return reply, err
		}
		words := strings.Fields(string(said))
		if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
			return nil, err
		}
		address, asking = withHost(words[2], address), words[0] == "ASK"
		if !asking {
			c.moved(slot, address)
		}
		err = nil
	}
	if err == nil {
		err = redis.Error("TRYAGAIN too many redirections for one slot")
	}
	return nil, err
}

// Close closes all connections.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pool := range c.pools {
		pool.Close()
	}
	c.pools, c.stale = map[string]*redis.Pool{}, true
	return nil
}

func (c *Cluster) ask(address string, asking bool, command string, args []interface{}) (interface{}, error) {
	conn := c.pool(address).Get()
	defer conn.Close()
	if asking {
		if err := conn.Send("ASKING"); err != nil {
			return nil, err
		}
	}
	return conn.Do(command, args...)
}

func (c *Cluster) pool(address string) *redis.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := c.pools[address]
	if pool == nil {
		pool = newPool(address, c.options)
		c.pools[address] = pool
	}
	return pool
}

func (c *Cluster) forget() {
	c.mu.Lock()
	c.stale = true
	c.mu.Unlock()
}

func (c *Cluster) moved(slot int, address string) {
	c.mu.Lock()
	c.slots[slot], c.stale = address, true
	c.mu.Unlock()
}

// node returns the address of a slot's master, from the first node that answers.
func (c *Cluster) node(slot int) (string, error) {
	c.mu.Lock()
	address, stale := c.slots[slot], c.stale
	nodes := append([]string(nil), c.seeds...)
	for known := range c.pools {
		nodes = append(nodes, known)
	}
	c.mu.Unlock()
	if !stale && address != "" {
		return address, nil
	}
	err := error(redis.Error("CLUSTERDOWN no node is known; give at least one to DialCluster"))
	for _, node := range nodes {
		var found [slotCount]string
		if found, err = c.read(node); err == nil {
			c.mu.Lock()
			c.slots, c.stale = found, false
			c.mu.Unlock()
			if found[slot] == "" {
				return "", redis.Error("CLUSTERDOWN no node serves slot " + strconv.Itoa(slot))
			}
			return found[slot], nil
		}
	}
	return "", err
}

func (c *Cluster) read(node string) (found [slotCount]string, err error) {
	ranges, err := redis.Values(c.ask(node, false, "CLUSTER", []interface{}{"SLOTS"}))
	if err != nil {
		return found, err
	}
	for _, each := range ranges {
		fields, err := redis.Values(each, nil)
		if err != nil || len(fields) < 3 {
			return found, fmt.Errorf("CLUSTER SLOTS of %s cannot be parsed", node)
		}
		from, _ := redis.Int(fields[0], nil)
		to, _ := redis.Int(fields[1], nil)
		master, _ := redis.Values(fields[2], nil)
		if len(master) < 2 || from < 0 || to >= slotCount {
			return found, fmt.Errorf("CLUSTER SLOTS of %s cannot be parsed", node)
		}
		host, _ := redis.String(master[0], nil) // nil if a node does not know its own host
		port, _ := redis.Int(master[1], nil)
		address := withHost(net.JoinHostPort(host, strconv.Itoa(port)), node)
		for slot := from; slot <= to; slot++ {
			found[slot] = address
		}
	}
	return found, nil
}

// withHost adds the host of the node that answered to an address without a host.
func withHost(address, node string) string {
	if host, _, err := net.SplitHostPort(node); err == nil && strings.HasPrefix(address, ":") {
		return net.JoinHostPort(host, address[1:])
	}
	return address
}

// SlotOf returns the slot of a key in a cluster: CRC16 of its hash tag.
func SlotOf(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	crc := uint16(0)
	for i := 0; i < len(key); i++ {
		crc ^= uint16(key[i]) << 8
		for bit := 0; bit < 8; bit++ {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slotCount
}
