// Package hardwaretest has an account of engine time for tests of the daemon.
//
// Callers: tests of backend and its packages.
//
// Trust boundary: none.
package hardwaretest

import (
	"sync"
	"time"

	"pegasus/backend/hardware"
)

// Account implements hardware.Account. Tests charge it with Hold. Its zero value is ready to use.
type Account struct {
	ID int64 // the result of Opened

	mu             sync.Mutex
	total, charged hardware.EngineTime
	closed         bool
}

// Opened implements hardware.Account.
func (a *Account) Opened() int64 { return a.ID }

// Total implements hardware.Account.
func (a *Account) Total() hardware.EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// Charged implements hardware.Account.
func (a *Account) Charged() hardware.EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.charged
}

// Turn implements hardware.Account.
func (a *Account) Turn(bool, bool, time.Duration) {}

// Close implements hardware.Account.
func (a *Account) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// Closed reports whether the account was closed.
func (a *Account) Closed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// Charge implements hardware.Account.
func (a *Account) Charge(time.Duration) hardware.EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.total
	t.Add(a.charged, -1)
	a.charged = a.total
	return t
}

// Hold adds the time for which an engine was held.
func (a *Account) Hold(t hardware.EngineTime) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total.Add(t, 1)
}
