package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pegasus/backend/control"
)

// changes is the daemon of the tests: it accepts changes and notes them. Polls are messages of the tests.
type changes struct {
	Daemon
	made []string
	err  error
}

func (c *changes) Status(context.Context) (control.Status, error) {
	return control.Status{Policies: []string{"none", "rr", "lag"}}, c.err
}

func (c *changes) Set(_ context.Context, q control.SetParams) (control.Domain, error) {
	c.made = append(c.made, fmt.Sprint(q.Domain, q.Settings))
	return control.Domain{DomainShare: control.DomainShare{Credits: 1024}}, c.err
}

func (c *changes) SwitchPolicy(_ context.Context, q control.PolicyParams) ([]control.Accelerator, error) {
	c.made = append(c.made, q.Accelerator+" "+q.Name)
	return nil, c.err
}

var start = time.Date(2027, 1, 2, 14, 3, 20, 0, time.UTC)

// example returns the answer of a daemon so many seconds after the start.
func example(seconds int) *Poll {
	s := uint64(seconds)
	domain := func(name, state string, credits int, entitled, share float64) control.Domain {
		return control.Domain{Name: name, Accelerator: "soft0", State: state, Processes: 1,
			DomainShare:  control.DomainShare{Credits: credits, Entitled: entitled, Share: share},
			DomainTime:   control.DomainTime{Calls: 1000 + 250*s*uint64(credits)/256, WaitP50: 120_000, WaitP99: 8_340_000},
			DomainMemory: control.DomainMemory{Memory: 96 << 20, MemoryQuota: 256 << 20, HostMemory: 3 << 20},
			Spent:        control.Spent{Window: 2e9, Accelerator: share, Turn: 0.9 - share, Idle: 0.1}}
	}
	web := domain("web", "running", 512, 0.5, 0.512)
	web.VCPUs, web.VCPURan, web.Steal = 2, int64(seconds)*1_900_000_000, 0.083
	render := domain("render", "waiting", 256, 0.25, 0.171)
	render.DomainSwap = control.DomainSwap{Swapped: 32 << 20, SwapOut: 1 << 30, SwapIn: 900 << 20}
	batch := domain("a-domain-with-a-name-that-is-longer-than-any-column", "idle", 256, 0.25, 0.317)
	idle := control.Domain{Name: "spare", State: "idle", DomainShare: control.DomainShare{Credits: 256}}
	return &Poll{At: start.Add(time.Duration(seconds) * time.Second),
		Accelerators: []control.Accelerator{
			{Name: "soft0", Type: "soft", Policy: "lag", Memory: 1 << 30, MemoryUsed: 288 << 20, Busy: 0.964, Domains: []string{"web"}},
			{Name: "soft1", Type: "soft", Policy: "none", Memory: 1 << 30}},
		Domains: []control.Domain{batch, idle, render, web}}
}

// drive is a model that a test sends messages.
type drive struct {
	t *testing.T
	Model
	daemon *changes
}

// begin returns a model after two polls, with samples of the daemon before them.
func begin(t *testing.T, width, height int) *drive {
	c := &changes{}
	d := &drive{t, New(c, Options{Interval: time.Second}), c}
	d.send(tea.WindowSizeMsg{Width: width, Height: height})
	var past []control.Sample
	for i := range 40 {
		past = append(past, control.Sample{At: start.Add(time.Duration(2*i-80) * time.Second).UnixNano(), Share: float64(i) / 40,
			Calls: float64(500 + 40*(i%7)), WaitP99: int64(i%5+1) * 1e6, Memory: 96 << 20})
	}
	d.send(pollMsg{poll: example(0)})
	d.send(pastMsg{{Domain: "web", Samples: past}})
	d.send(pollMsg{poll: example(1)})
	return d
}

// send carries out a message and returns the command.
func (d *drive) send(msg tea.Msg) tea.Cmd {
	next, cmd := d.Update(msg)
	d.Model = next.(Model)
	return cmd
}

// named are the keys without a text.
var named = map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace, "up": tea.KeyUp,
	"down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight, "end": tea.KeyEnd}

// press presses keys in turn and returns the command of the last.
func (d *drive) press(keys ...string) (cmd tea.Cmd) {
	for _, k := range keys {
		if code, ok := named[k]; ok {
			cmd = d.send(tea.KeyPressMsg{Code: code})
		} else {
			r, _ := utf8.DecodeRuneInString(k)
			cmd = d.send(tea.KeyPressMsg{Code: r, Text: k})
		}
	}
	return cmd
}

// write presses the key of each character.
func (d *drive) write(text string) {
	for _, r := range text {
		d.press(string(r))
	}
}

// plain returns the screen without styles.
func (d *drive) plain() string {
	var lines []string
	for line := range strings.SplitSeq(ansi.Strip(d.Screen()), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// compare compares the screen with a file of testdata; TOP_UPDATE=1 writes the file.
func (d *drive) compare(name string) {
	d.t.Helper()
	path, got := filepath.Join("testdata", name+".txt"), d.plain()
	if os.Getenv("TOP_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	if got != string(want) {
		d.t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// order returns the names of the domains on the screen.
func (d *drive) order() (names []string) {
	for _, r := range d.rows() {
		names = append(names, r.Name[:min(len(r.Name), 6)])
	}
	return names
}

func (d *drive) wantOrder(what string, want ...string) {
	d.t.Helper()
	if got := d.order(); !slices.Equal(got, want) {
		d.t.Errorf("%s: got the order %v, want %v", what, got, want)
	}
}

func (d *drive) wantText(text string) {
	d.t.Helper()
	if !strings.Contains(d.plain(), text) {
		d.t.Errorf("the screen lacks %q:\n%s", text, d.plain())
	}
}

func TestScreens(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {120, 40}, {40, 10}} {
		name := fmt.Sprintf("%dx%d", size.width, size.height)
		d := begin(t, size.width, size.height)
		d.compare("list-" + name)
		d.press("s")
		d.compare("sort-" + name)
		d.press("esc", "enter")
		d.send(detailsMsg{details: details{domain: "web", past: d.domains["web"][:40], reasons: []string{
			"on soft0, running, with 1 guest process",
			"credits 512: owed 50.0 %, got 51.2 % of the time used in the last 2s",
			"policy lag: domain web lags most, by 3.1ms, and has the turn until the others lag more"}}})
		d.compare("details-" + name)
		d.press("?")
		d.compare("help-" + name)
	}
	d := begin(t, 80, 24)
	d.press("right", "right", "right", "right", "right", "right")
	d.compare("columns-80x24")
}

// No screen has more lines than the terminal, or a longer line, whatever the names.
func TestEverySize(t *testing.T) {
	d := begin(t, 80, 24)
	p := example(2)
	for i := range 200 {
		p.Domains = append(p.Domains, control.Domain{Name: fmt.Sprintf("多字节-%03d-%s", i, strings.Repeat("x", i%50)), Accelerator: "soft0\x1b[2J"})
	}
	d.send(pollMsg{poll: p})
	states := map[string][]string{"list": nil, "end": {"end"}, "sort": {"s"}, "details": {"enter"}, "help": {"?"}, "filter": {"/", "w"},
		"credits": {"c", "5", "enter"}, "columns": {"right", "right", "right", "right", "right", "right", "right", "right", "right"}}
	for name, keys := range states {
		at := *d
		at.press(keys...)
		for _, width := range []int{1, 2, 9, 20, 40, 79, 80, 120, 300} {
			for _, height := range []int{1, 2, 3, 5, 10, 24, 60} {
				at.send(tea.WindowSizeMsg{Width: width, Height: height})
				screen := at.Screen()
				if strings.Contains(screen, "\x1b[2J") {
					t.Errorf("%s: the screen has the escape of a name", name)
				}
				lines := strings.Split(screen, "\n")
				if len(lines) != height {
					t.Errorf("%s at %d×%d: %d lines", name, width, height, len(lines))
				}
				for _, l := range lines {
					if n := ansi.StringWidth(l); n > width {
						t.Errorf("%s at %d×%d: a line of %d cells: %q", name, width, height, n, l)
					}
				}
			}
		}
	}
}

func TestSort(t *testing.T) {
	d := begin(t, 80, 24)
	d.wantOrder("by share", "web", "a-doma", "render", "spare")
	d.press("r")
	d.wantOrder("reversed", "spare", "render", "a-doma", "web")
	d.press("r", "s", "up", "enter")
	d.wantOrder("by name", "a-doma", "render", "spare", "web")
	d.press("s", "down", "down", "down", "enter")
	d.wantOrder("by error", "render", "web", "a-doma", "spare")
	d.wantText("by ERROR ↓")
	d.press("s", "esc")
	d.wantText("by ERROR ↓")
}

func TestFilter(t *testing.T) {
	d := begin(t, 80, 24)
	d.press("/")
	d.write("RE")
	d.wantOrder("while the filter is typed", "render", "spare")
	d.press("backspace")
	d.write("end")
	d.press("enter")
	d.wantOrder("filtered", "render")
	d.wantText(`filter "Rend"`)
	d.press("/", "esc")
	d.wantOrder("without a filter", "web", "a-doma", "render", "spare")
	d.press("/")
	d.write("nothing")
	d.wantText(`no domain matches "nothing"`)
}

// The states of objectives have a column, and violations a colour.
func TestObjectives(t *testing.T) {
	states := map[string]string{"web": "violated", "render": "kept"}
	opt := Options{Interval: time.Second, Objective: func(d control.Domain) string { return orDash(states[d.Name]) }}
	d := &drive{t: t, Model: New(&changes{}, opt)}
	d.send(tea.WindowSizeMsg{Width: 120, Height: 24})
	d.send(pollMsg{poll: example(1)})
	d.press("down")
	if screen := d.Screen(); !strings.Contains(screen, bad.Styled(fit("violated", 8, true))) || strings.Contains(screen, bad.Styled(fit("kept", 8, true))) {
		t.Errorf("want violated in red and kept without a colour:\n%s", d.plain())
	}
	r := &Report{Domains: example(1).Rows(nil)}
	head, rows := r.Table(opt.Objective)
	if at := slices.Index(head, "SLO"); at < 0 || rows[0][at] != "violated" {
		t.Errorf("got the table %v %v, want the state of web first", head, rows)
	}
}

// The selection stays on its domain when the order changes, and scrolls with the list.
func TestSelection(t *testing.T) {
	d := begin(t, 40, 10)
	d.press("down")
	if d.cursor[:6] != "a-doma" {
		t.Errorf("got the selection %q, want the second domain", d.cursor)
	}
	d.press("r")
	if d.cursor[:6] != "a-doma" {
		t.Errorf("got the selection %q after r, want the same domain", d.cursor)
	}
	p := example(2)
	for i := range 200 {
		p.Domains = append(p.Domains, control.Domain{Name: fmt.Sprintf("d%03d", i)})
	}
	d.send(pollMsg{poll: p})
	d.press("s", "up", "enter", "r", "end")
	d.wantText("›web")
	d.wantText("rows 201 to 204 of 204")
	d.press("g")
	d.wantText("›a-domain")
}

// A frozen screen doesn't change with polls; sort and filter still work; then it shows the latest poll.
func TestFreeze(t *testing.T) {
	d := begin(t, 120, 40)
	d.press("f")
	frozen := d.plain()
	for i := range 10 {
		p := example(2 + i)
		p.Domains[3].Share = 0
		d.send(pollMsg{poll: p})
	}
	if got := d.plain(); got != frozen {
		t.Errorf("the frozen screen changed from\n%s to\n%s", frozen, got)
	}
	d.press("r")
	d.wantOrder("frozen and reversed", "spare", "render", "a-doma", "web")
	d.press("f", "r")
	d.wantOrder("with the latest poll", "a-doma", "render", "spare", "web")
}

func TestChangeCredits(t *testing.T) {
	d := begin(t, 80, 24)
	ask := func() {
		d.press("c")
		d.write("1024")
		d.press("enter")
	}
	ask()
	d.wantText("change credits of web from 512 to 1024? y: yes")
	if cmd := d.press("n"); cmd != nil || len(d.daemon.made) > 0 {
		t.Errorf("n: got a command, and the changes %v", d.daemon.made)
	}
	d.wantText("nothing was changed")
	ask()
	d.send(d.press("y")())
	if want := []string{"webmap[credits:1024]"}; !slices.Equal(d.daemon.made, want) {
		t.Errorf("got the changes %v, want %v", d.daemon.made, want)
	}
	d.wantText("credits of web are 1024")
	d.daemon.err = control.Errorf(control.CodeDenied, "set web: the role view may not change settings")
	ask()
	d.send(d.press("y")())
	d.wantText("not changed: set web: the role view may not change settings")
	d.send(tea.WindowSizeMsg{Width: 30, Height: 10})
	for _, line := range []string{"not changed: set web: the role", "view may not change settings"} {
		d.wantText(line) // as a whole, on two lines
	}
	d.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	d.press("c")
	d.write("512")
	d.press("enter")
	d.wantText("credits of web stay 512")
}

func TestChangePolicy(t *testing.T) {
	d := begin(t, 80, 24)
	d.press("p")
	d.wantText("› soft0")
	d.send(d.press("enter")())
	d.wantText("› lag")
	d.press("up", "enter")
	d.wantText("change policy of soft0 from lag to rr? y: yes")
	d.send(d.press("y")())
	if want := []string{"soft0 rr"}; !slices.Equal(d.daemon.made, want) {
		t.Errorf("got the changes %v, want %v", d.daemon.made, want)
	}
	d.wantText("policy of soft0 is rr")
}

// A daemon that goes away leaves the screen as it was; the next one continues it, with counters of its own.
func TestDaemonGone(t *testing.T) {
	d := begin(t, 120, 24)
	d.press("down")
	if cmd := d.send(pollMsg{err: errors.New("dial unix: connection refused")}); cmd == nil {
		t.Error("no poll follows an error")
	}
	d.wantText("the daemon is gone; trying again")
	d.wantText("web")
	d.send(pollMsg{err: context.DeadlineExceeded})
	d.wantText("the daemon does not answer; trying again")
	d.send(pollMsg{err: control.Errorf(control.CodeEnding, "the daemon ends")})
	d.wantText("the daemon refuses: the daemon ends")
	p := example(9)
	p.Domains[3].Calls = 5
	d.send(pollMsg{poll: p})
	d.wantText("the daemon is back")
	if d.cursor[:6] != "a-doma" {
		t.Errorf("got the selection %q, want the one before", d.cursor)
	}
	if r := d.rows()[0]; r.Rate != nil || r.Run != nil {
		t.Errorf("got the rates %v and %v of a counter that shrank, want none", r.Rate, r.Run)
	}
}

// A domain that ends while its details are shown leaves a page that names it.
func TestDetailsOfEndedDomain(t *testing.T) {
	d := begin(t, 80, 24)
	d.press("enter")
	p := example(2)
	p.Domains = p.Domains[:3]
	d.send(pollMsg{poll: p})
	d.wantText("domain web has ended")
}

func TestRates(t *testing.T) {
	rows := example(5).Rows(example(3))
	web := rows[3]
	if web.Rate == nil || *web.Rate != 500 {
		t.Errorf("got %v calls per second, want 500", web.Rate)
	}
	if web.Run == nil || *web.Run != 1.9 {
		t.Errorf("got %v CPUs, want 1.9", web.Run)
	}
	if rows[1].Error != nil {
		t.Errorf("got the error %v of a domain without entitlement, want none", *rows[1].Error)
	}
	if r := example(5).Rows(nil)[3]; r.Rate != nil {
		t.Errorf("got the rate %v of one poll, want none", *r.Rate)
	}
}

func TestSpark(t *testing.T) {
	at := time.Unix(100, 0)
	var samples []control.Sample
	for i := range 8 {
		samples = append(samples, control.Sample{At: at.Add(time.Duration(i-9) * time.Second).UnixNano(), Share: float64(i / 2)})
	}
	samples = append(samples, control.Sample{At: at.Add(time.Second).UnixNano(), Share: 99}) // newer than the screen
	share := func(s control.Sample) float64 { return s.Share }
	for _, c := range []struct {
		most float64
		want string
	}{{3, "  ▁▂▅▇█ "}, {6, "  ▁▂▃▄▅ "}} {
		if got := spark(samples, share, at, 2*time.Second, 8, c.most); got != c.want {
			t.Errorf("most %v: got %q, want %q", c.most, got, c.want)
		}
	}
	if got := spark(nil, share, at, time.Second, 3, 0); got != "   " {
		t.Errorf("without samples: got %q, want blanks", got)
	}
}

func TestHistory(t *testing.T) {
	h := history{}
	h.add("a", control.Sample{At: 10})
	h.before("a", []control.Sample{{At: 5}, {At: 9}, {At: 10}, {At: 11}})
	var at []int64
	for _, s := range h["a"] {
		at = append(at, s.At)
	}
	if want := []int64{5, 9, 10}; !slices.Equal(at, want) {
		t.Errorf("got samples at %v, want %v", at, want)
	}
	for i := range int64(5 * maxSamples) {
		h.add("a", control.Sample{At: 20 + i})
	}
	if n := len(h["a"]); n < maxSamples || n > 2*maxSamples {
		t.Errorf("got %d samples, want %d to %d", n, maxSamples, 2*maxSamples)
	}
	h.keep(1 << 40)
	if len(h) != 0 {
		t.Errorf("got %d names after their samples are old, want 0", len(h))
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(0.5), "0.50"}, {count(42), "42.0"}, {count(999), "999"}, {count(1234), "1.23k"}, {count(5e6), "5.00M"},
		{duration(0), "0"}, {duration(999), "999 ns"}, {duration(999_600), "1 ms"}, {duration(8_340_000), "8.34 ms"}, {duration(3.6e12), "1.0 h"},
		{size(0), "0 B"}, {size(1000), "0.977 KiB"}, {size(96 << 20), "96 MiB"}, {size(3 << 40), "3 TiB"},
		{signed(-0.0001), "0.0 %"}, {signed(0.012), "+1.2 %"}, {signed(-0.12), "-12.0 %"},
		{fit("abcdef", 4, true), "abc…"}, {fit("多字节", 4, true), "多… "}, {fit("a\x1b[2Jb", 8, false), "  a·[2Jb"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// A domain that ended before its first sample, of which the daemon's history has the name only, leaves no samples.
func TestHistoryWithoutSamples(t *testing.T) {
	h := history{}
	h.before("short", nil)
	h.keep(1)
	if len(h) != 0 {
		t.Errorf("samples: %v, want none", h)
	}
}
