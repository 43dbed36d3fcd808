package acker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Codes of errors. Other codes are those of the scripts, see lua/README.md: NAMESPACE, SHARD,
// CONFLICT, ..
const (
	// CodeRefused means that a row, text or setting is invalid. Nothing was sent.
	CodeRefused = "REFUSED"
	// CodeRejected means that the tree was nacked immediately. Emit none of its messages; its source
	// receives the nack.
	CodeRejected = "REJECTED"
	// CodeBacklog means that nothing may be tracked now. Take the task's outcomes, then retry.
	CodeBacklog = "BACKLOG"
	// CodeUnavailable means that no reply came in time. The batch may have been applied.
	CodeUnavailable = "UNAVAILABLE"
	// CodeLate means that the fence may have expired, so the batch may not be sent again. Let its
	// trees expire.
	CodeLate = "LATE"
	// CodeLane means that the lane is at a higher number: another process uses it, such as a copy of
	// this one.
	CodeLane = "LANE"
	// CodeFull means that rows waited too long for room in the buffer; none of them was accepted.
	CodeFull = "FULL"
	// CodeClosed means that the message was already acked or failed, or that the client is closed.
	CodeClosed = "CLOSED"
	// CodeRedis means that Redis replied with any other error.
	CodeRedis = "REDIS"
)

// Error is the type of all errors of this package. It wraps the error of a context.
type Error struct {
	Code  string
	Words string
	Cause error
	// MayPass says, with CodeRedis, that Redis refused the call for a cause that may pass, such as a full
	// memory or a password that is being changed, and that nothing was changed.
	MayPass bool
}

func (e *Error) Error() string { return e.Code + ": " + e.Words }

// Unwrap returns the cause of the error.
func (e *Error) Unwrap() error { return e.Cause }

// Code returns the code of an error of this package, and "" for any other error.
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

// From acker_redis/protocol/codes.py, by python -m proof.spec
var (
	// Transient states: start-up, failover, a migrating slot, a long script, a full disk.
	passing = regexp.MustCompile(`^(ERR max number of clients reached|` +
		`MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF)\b`)
	// Refusals that may pass: memory is freed, a password or a right changes.
	patient = regexp.MustCompile(`^(OOM|NOAUTH|WRONGPASS|NOPERM)\b`)
	// A master that was replaced, or may be soon, and a connection that could not authenticate.
	demoted = regexp.MustCompile(`^(LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS)\b`)
)

// noRightInScript matches the lack of a right to a single command of a script. Commands before it may
// have run.
var noRightInScript = regexp.MustCompile(`The user executing the script can't |ACL failure in script: `)

// isDemoted reports whether a server replied as a demoted master does.
func isDemoted(err error) bool {
	var replied redis.Error
	return errors.As(err, &replied) &&
		demoted.MatchString(inScript.ReplaceAllString(string(replied), "$1"))
}

// inScript is the prefix of Redis 6.2 before the error of a command inside a script.
var inScript = regexp.MustCompile(`^(?s:(?:ERR )?Error running script .*?: -?)([A-Z]+ )`)

// translate returns the error of this package for one of redigo.
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
		return &Error{Code: code, Words: said, Cause: err}
	}
	if passing.MatchString(words) {
		return &Error{Code: CodeUnavailable, Words: "Redis cannot run the call now: " + words, Cause: err}
	}
	if isFull(err) {
		return &Error{Code: CodeRedis, Cause: err, MayPass: true, Words: "Redis is at maxmemory and refused " +
			"the call; nothing was changed. Raise maxmemory, lower high_water, or let the sources take " +
			"their outcomes"}
	}
	passes := patient.MatchString(words) && !noRightInScript.MatchString(words)
	return &Error{Code: CodeRedis, Words: "Redis refused the call: " + words, Cause: err, MayPass: passes}
}

// isFull reports whether Redis refused a call because it is at maxmemory.
func isFull(err error) bool {
	var replied redis.Error
	return errors.As(err, &replied) &&
		strings.HasPrefix(inScript.ReplaceAllString(string(replied), "$1"), "OOM ")
}

// mayPass reports whether Redis refused a call for a cause that may pass.
func mayPass(err error) bool {
	var ours *Error
	return errors.As(err, &ours) && ours.MayPass
}
