package engine

import (
	"context"
	"sync"
	"testing"
)

// arbitrated is an accelerator whose engines an Arbiter grants.
type arbitrated struct {
	*Arbiter
	memory *Memory
}

// arbitrate starts the arbiter of an accelerator.
func arbitrate(t *testing.T, m *Memory) *arbitrated {
	t.Helper()
	a := NewArbiter(m, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return &arbitrated{a, m}
}

// domain adds a domain whose turn it always is.
func (a *arbitrated) domain(t *testing.T) (*Engines, *Party) {
	t.Helper()
	e, err := CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	d := a.Add(e)
	a.SetTurn(d, true, true)
	t.Cleanup(func() { a.Remove(d); e.Close() })
	return e, d
}
