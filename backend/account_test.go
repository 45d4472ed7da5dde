package backend

import "sync"

// fakeAccount is an account of engine time that tests charge.
type fakeAccount struct {
	opened int64

	mu             sync.Mutex
	total, charged EngineTime
	closed         bool
}

func (a *fakeAccount) Opened() int64 { return a.opened }

func (a *fakeAccount) Total() EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

func (a *fakeAccount) Close() { a.closed = true }

func (a *fakeAccount) Charge() EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.total
	t.add(a.charged, -1)
	a.charged = a.total
	return t
}

// hold adds the time for which an engine was held.
func (a *fakeAccount) hold(t EngineTime) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total.add(t, 1)
}

// hold charges a test's domain.
func (m *avcpu) hold(t EngineTime) { m.account.(*fakeAccount).hold(t) }
