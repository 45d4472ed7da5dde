package xen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pegasus/callbuf"
	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// A walk of the tables finds every page, in order.
func TestTables(t *testing.T) {
	for _, n := range []int{1, region.TableRefs, region.TableRefs + 1, 4608} {
		refs := make([]grant.Ref, n)
		var want []uint32
		for i := range refs {
			refs[i] = grant.Ref(10000 + i)
			want = append(want, uint32(10000+i))
		}
		var own []grant.Ref
		for i := range region.Tables(n) {
			own = append(own, grant.Ref(100+2*i))
		}
		mem := make([]byte, len(own)*grant.PageBytes)
		fillTables(mem, refs, own)
		var got []uint32
		at := uint32(own[0])
		for at != 0 {
			i := slices.Index(own, grant.Ref(at))
			if i < 0 {
				t.Fatalf("%d pages: a table at %d", n, at)
			}
			some, next, err := region.ParseTable(mem[i*grant.PageBytes:][:grant.PageBytes])
			if err != nil {
				t.Fatal(err)
			}
			got, at = append(got, some...), next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d pages: %d are found", n, len(got))
		}
	}
}

// The kernel's limit is raised, and never lowered.
func TestLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limit")
	for _, c := range []struct {
		has  string
		want string
	}{{"1024\n", "17425"}, {"100000\n", "100000\n"}} {
		if err := os.WriteFile(path, []byte(c.has), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := raiseLimitIn(path, 64<<20/grant.PageBytes); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != c.want {
			t.Errorf("from %q: %q, %v", c.has, b, err)
		}
	}
	if err := raiseLimitIn(filepath.Join(t.TempDir(), "none"), 1); err == nil || !strings.Contains(err.Error(), "1026 pages") {
		t.Error(err)
	}
}

// The error of a failed grant gives a program the remedy, as far as there is room.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		says []string
	}{
		{fmt.Errorf("grant: %w", syscall.ENOSPC), []string{"max_grant_frames", "--memory"}},
		{fmt.Errorf("grant: %w", syscall.ENOMEM), []string{"4610 pages", "xl mem-set"}},
	} {
		err := explain(c.err, 0, 4610)
		welcome, perr := callbuf.ParseWelcome(callbuf.Welcome{Version: callbuf.Version, Result: 802, Message: err.Error()}.Append(nil))
		if perr != nil || !errors.As(err, new(*agent.Obstacle)) || !errors.Is(err, errors.Unwrap(c.err)) {
			t.Errorf("%v, %v", err, perr)
		}
		for _, text := range c.says {
			if !strings.Contains(welcome.Message, text) {
				t.Errorf("%q doesn't say %q", welcome.Message, text)
			}
		}
	}
	if err := explain(syscall.EPERM, 0, 1); err != syscall.EPERM {
		t.Error(err)
	}
}

func TestLacking(t *testing.T) {
	err := lacking([]string{"/dev/xen/gntalloc", "/dev/xen/evtchn"}, []string{"xen-gntalloc", "xen-evtchn"})
	if text := err.Error(); !strings.Contains(text, "`modprobe -a xen-gntalloc xen-evtchn`") || !strings.Contains(text, "/dev/xen/gntalloc, /dev/xen/evtchn") {
		t.Error(err)
	}
}
