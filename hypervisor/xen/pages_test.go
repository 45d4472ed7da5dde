package xen

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/grant"
	"pegasus/hypervisor/hub"
)

// A lack of resources in Dom0 isn't reported as the domU's fault, and a missing grant isn't Dom0's.
func TestPageError(t *testing.T) {
	for _, c := range []struct {
		err  error
		host bool
		says string
	}{
		{fmt.Errorf("map the header: %w (%w)", grant.ErrNotGranted, unix.EINVAL), false, "doesn't grant"},
		{fmt.Errorf("map 4096 pages of domain 7: %w", unix.ENOMEM), true, "give Dom0 more memory"},
		{fmt.Errorf("map 4096 pages of domain 7: %w", unix.EINVAL), true, "xen_gntdev/parameters/limit"},
		{fmt.Errorf("open: %w", unix.EMFILE), true, "too many open files"},
	} {
		var host *hub.HostError
		err := pageError(c.err)
		if errors.As(err, &host) != c.host || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v becomes %v", c.err, err)
		}
	}
	if pageError(nil) != nil {
		t.Error("nothing is an error")
	}
	if _, err := grant.NewMapper(); !errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is Xen's device here")
	}
	var host *hub.HostError
	if _, _, err := domain(7).Segment([]grant.Ref{8}, 1); !errors.As(err, &host) {
		t.Errorf("without the device: %v", err)
	}
	if _, err := segmentPages(domain(7), 8, 1); !errors.As(err, &host) {
		t.Errorf("of a table: %v", err)
	}
}

// A segment that the host can't map uses none of the domU's pages, and can be lent again.
func TestHostCantMap(t *testing.T) {
	h := newHost(t, DomU{Memory: layout.SegmentBytes})
	h.area(100)
	h.publish(100, "5")
	h.take()
	segment := h.grant(1000, pagesOfSegment)
	h.broken = &hub.HostError{Err: unix.ENOMEM}
	var host *hub.HostError
	if _, err := h.memory.Lend(1, layout, h.tables(500, segment)); !errors.As(err, &host) {
		t.Errorf("%v", err)
	}
	h.broken = nil
	if _, err := h.memory.Lend(2, layout, h.tables(500, segment)); err != nil {
		t.Error(err)
	}
	h.memory.TakeBack(2)
}
