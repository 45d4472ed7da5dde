package xenstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// An event just before the end of a watch reaches a Next that waits at that moment.
func TestLastEvent(t *testing.T) {
	for i := range 50_000 {
		w := &Watch{path: "/v", known: map[string]bool{}, ready: make(chan struct{}, 1), ended: make(chan struct{})}
		began, failed := make(chan struct{}), make(chan error, 1)
		go func() {
			close(began)
			_, err := w.Next(context.Background())
			failed <- err
		}()
		<-began
		w.enqueue("/v")
		w.fail(ErrEnded)
		if err := <-failed; err != nil {
			t.Fatalf("after %d times: %v", i, err)
		}
		if _, err := w.Next(context.Background()); !errors.Is(err, ErrEnded) {
			t.Fatal(fmt.Errorf("behind the last one: %w", err))
		}
	}
}
