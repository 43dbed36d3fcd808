//go:build acker_driver

package acker

import (
	"context"
	"time"
)

// ApplyUnder packs a batch under a given lane, number and digest, and sends it once. It is only for
// the cases of acker-redis, and exists only in the build of their driver.
func (c *Client) ApplyUnder(batch *Batch, producer string, seq uint64, digest string) (Applied, error) {
	config, err := c.configuration(context.Background(), time.Now(), true)
	if err != nil || batch.empty() {
		return Applied{}, err
	}
	parts := batch.parts(config.shards)
	for i, part := range parts {
		applied, err := c.sendOnce(part, producer, seq+uint64(i), digest)
		if err != nil {
			return combine(parts), err
		}
		part.reply = &applied
	}
	return combine(parts), nil
}

// FailDelta folds in a failure with emitted ids but without a processed message.
func (b *Batch) FailDelta(anchor uint64, why string, emitted []uint64) error {
	delta, err := xorIDs(emitted)
	if err != nil {
		return err
	}
	return b.fail(anchor, delta, flagFail, why)
}
