package api

import (
	"testing"
	"testing/synctest"
	"time"
)

// A client that connects just after the previous one has hung up gets the timeline; a client that connects while
// another stays does not.
func TestOneWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Server{}
		if !d.watch(t.Context()) {
			t.Fatal("the first is refused")
		}
		time.AfterFunc(watcherGone/2, d.unwatch)
		if !d.watch(t.Context()) {
			t.Error("refused for the sake of one that has gone")
		}
		if d.watch(t.Context()) {
			t.Error("two watch")
		}
	})
}
