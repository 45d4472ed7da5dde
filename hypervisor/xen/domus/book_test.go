package domus

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// XenStore removes an ending domU before the hypervisor does, and is read several times meanwhile: that is not
// logged. A domU that is missing for longer is, once.
func TestForgotten(t *testing.T) {
	var said strings.Builder
	b := newBook(nil, slog.New(slog.NewTextHandler(&said, nil)))
	now := time.Now()
	known := map[uint16]string{3: "web"}
	warned := func(after time.Duration, names map[uint16]string) int {
		b.name(names, now.Add(after))
		return strings.Count(said.String(), "domU missing from XenStore")
	}
	for range 5 {
		if warned(0, known)+warned(time.Millisecond, nil)+warned(300*time.Millisecond, nil)+warned(endTime/2, nil) != 0 {
			t.Fatal(said.String())
		}
	}
	for i := range 5 {
		if n := warned(endTime+time.Duration(1+i)*time.Second, nil); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, said.String())
		}
	}
	warned(0, known)
	if warned(0, nil); warned(endTime, nil) != 2 {
		t.Errorf("another time wasn't said:\n%s", said.String())
	}
}
