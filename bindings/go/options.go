package st

/*
#include "bridge.h"
*/
import "C"

import (
	"math"
	"time"
)

// An OpenOption is for Open, OpenBytes and OpenContext.
type OpenOption interface{ toOpen(*openConfig) }

// A TxOption is for Begin and BeginContext.
type TxOption interface{ toTx(*txConfig) }

// A VerifyOption is for Verify and VerifyContext.
type VerifyOption interface{ toVerify(*verifyConfig) }

// A RecoverOption is for Recover.
type RecoverOption interface{ toRecover(*recoverConfig) }

type openConfig struct {
	c     C.st_open_options
	hooks hooks
}

type txConfig struct {
	c     C.st_txn_options
	hooks hooks
}

type verifyConfig struct {
	c     C.st_verify_options
	hooks hooks
}

type recoverConfig struct {
	c     C.st_recover_options
	hooks hooks
}

type openOption func(*openConfig)

func (o openOption) toOpen(c *openConfig) { o(c) }

// ReadWrite allows changes; the file must be writable.
func ReadWrite() OpenOption {
	return openOption(func(c *openConfig) { c.c.flags |= C.ST_OPEN_READ_WRITE })
}

// MapMode is how the data of a file is reached.
type MapMode uint32

// The ways to reach data.
const (
	MapAuto    MapMode = 0 // as the storage asks; the environment's ST_MAP overrides
	MapShared  MapMode = 1 // MAP_SHARED; falls back to private, then to none
	MapPrivate MapMode = 2 // MAP_PRIVATE; falls back to none
	MapNone    MapMode = 3 // no mapping: tensors are read into memory of the file's when first viewed
)

func (m MapMode) String() string {
	switch m {
	case MapAuto:
		return "auto"
	case MapShared:
		return "shared"
	case MapPrivate:
		return "private"
	case MapNone:
		return "none"
	}
	return "unknown"
}

// WithMap chooses how the data is reached.
func WithMap(mode MapMode) OpenOption {
	return openOption(func(c *openConfig) { c.c._map = C.uint32_t(mode) })
}

// WithLog tells what a user may want to know.
func WithLog(log Log) OpenOption {
	return openOption(func(c *openConfig) { c.hooks.log = log })
}

type lockTimeout C.int32_t

func (t lockTimeout) toOpen(c *openConfig)       { c.c.lock_timeout_ms = C.int32_t(t) }
func (t lockTimeout) toTx(c *txConfig)           { c.c.lock_timeout_ms = C.int32_t(t) }
func (t lockTimeout) toRecover(c *recoverConfig) { c.c.lock_timeout_ms = C.int32_t(t) }

// WithLockTimeout says how long to wait for other workers' locks: 0 not at all, less than 0 for ever; the default is
// ten seconds. Given to Open it is for recovery and for File.Update; given to Begin, for that transaction's commit.
func WithLockTimeout(d time.Duration) interface {
	OpenOption
	TxOption
	RecoverOption
} {
	if d < 0 {
		return lockTimeout(C.ST_TIMEOUT_FOREVER)
	}
	ms := (d + time.Millisecond - 1) / time.Millisecond // a short wait is still a wait
	return lockTimeout(min(ms, math.MaxInt32))
}

type progress struct{ fn Progress }

func (p progress) toOpen(c *openConfig)     { c.hooks.progress = p.fn }
func (p progress) toTx(c *txConfig)         { c.hooks.progress = p.fn }
func (p progress) toVerify(c *verifyConfig) { c.hooks.progress = p.fn }

// WithProgress watches long calls: given to Open, those of the file; given to Begin, those of the transaction.
func WithProgress(fn Progress) interface {
	OpenOption
	TxOption
	VerifyOption
} {
	return progress{fn}
}

type report struct{ fn func(Report) error }

func (r report) toVerify(c *verifyConfig)   { c.hooks.report = r.fn }
func (r report) toRecover(c *recoverConfig) { c.hooks.report = r.fn }

// WithReport is told each finding; an error stops the work.
func WithReport(fn func(Report) error) interface {
	VerifyOption
	RecoverOption
} {
	return report{fn}
}
