package acker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Codes of errors. Others are those of the scripts, see lua/README.md: NAMESPACE, SHARD,
// CONFLICT, ..
const (
	// CodeRefused: a row, text or setting that cannot be. Nothing was sent.
	CodeRefused = "REFUSED"
	// CodeRejected: the acker has nacked the tree at once. Emit nothing of it; its source is told.
	CodeRejected = "REJECTED"
	// CodeBacklog: nothing may be tracked now. Take the task's outcomes, and try again.
	CodeBacklog = "BACKLOG"
	// CodeUnavailable: no answer came in time. The batch may have been applied.
	CodeUnavailable = "UNAVAILABLE"
	// CodeLate: the fence may be gone, so the batch may not be sent again. Let its trees expire.
	CodeLate = "LATE"
	// CodeLane: the lane is at a higher number: something has copied this process.
	CodeLane = "LANE"
	// CodeFull: rows have waited for too long for room in the buffer; none was taken in.
	CodeFull = "FULL"
	// CodeClosed: this message was acked or failed, or the client closed, before.
	CodeClosed = "CLOSED"
	// CodeRedis: Redis has answered with any other error.
	CodeRedis = "REDIS"
)

// Error is every error of this package, but those of a context, which it wraps.
type Error struct {
	Code  string
	Words string
	Cause error
}

func (e *Error) Error() string { return e.Code + ": " + e.Words }

// Unwrap returns what it was caused by.
func (e *Error) Unwrap() error { return e.Cause }

// Code of an error of this package; "" for any other.
func Code(err error) string {
	var ours *Error
	if errors.As(err, &ours) {
		return ours.Code
	}
	return ""
}

func refused(format string, args ...interface{}) error {
	return &Error{Code: CodeRefused, Words: fmt.Sprintf(format, args...)}
}

func ended(ctx context.Context, what string) error {
	return &Error{Code: CodeUnavailable, Words: what + ": " + ctx.Err().Error(), Cause: ctx.Err()}
}

var advice = map[string]string{
	"NAMESPACE": "; create it (acker-redis create), or finish dropping it (acker-redis drop)",
	"SCHEMA":    "; use the version of acker-redis that wrote it",
	"SHARD":     "; the namespace was moved or created anew",
	"CONFLICT":  "; something has used this lane with other content",
}

// States that pass: start-up, failover, a slot that moves, a long script.
var passing = regexp.MustCompile(
	`^(LOADING|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|BUSY|NOREPLICAS|MOVED|ASK)\b`)

// Of a master that was replaced, or may be soon.
var demoted = regexp.MustCompile(`^(READONLY|MASTERDOWN|NOREPLICAS|LOADING)\b`)

// isDemoted says whether a server replied so as a demoted master does.
func isDemoted(err error) bool {
	var replied redis.Error
	return errors.As(err, &replied) &&
		demoted.MatchString(inScript.ReplaceAllString(string(replied), "$1"))
}

// What Redis 6.2 puts before an error that a command in a script has met.
var inScript = regexp.MustCompile(`^(?s:(?:ERR )?Error running script .*?: -?)([A-Z]+ )`)

// translate gives the error of this package for one of redigo.
func translate(err error) error {
	var ours *Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	var replied redis.Error
	if !errors.As(err, &replied) {
		words := "Redis did not answer: " + err.Error() + "; is it running and reachable?"
		return &Error{Code: CodeUnavailable, Words: words, Cause: err}
	}
	words := inScript.ReplaceAllString(string(replied), "$1")
	if rest := strings.TrimPrefix(words, "ACKER "); rest != words {
		code, said, _ := strings.Cut(rest, " ")
		return &Error{Code: code, Words: said + advice[code], Cause: err}
	}
	if passing.MatchString(words) {
		return &Error{Code: CodeUnavailable, Words: "Redis cannot do it now: " + words, Cause: err}
	}
	if strings.HasPrefix(words, "OOM") {
		words = "it is at maxmemory; raise it, lower high_water, or let the sources take their outcomes"
	}
	return &Error{Code: CodeRedis, Words: "Redis refused the call: " + words, Cause: err}
}
