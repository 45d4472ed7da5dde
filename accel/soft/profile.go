package soft

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane"
)

// profile collects the costs of kernels, from the call of Profile on.
type profile struct {
	on atomic.Bool

	mu      sync.Mutex
	kernels map[kernelName]*kernelProfile
	more    kernelProfile     // of kernels beyond maxProfiles
	sources map[uint64][]byte // of modules that are one text, by image
	kept    int               // bytes of sources
}

// kernelName identifies a kernel, also after its module was unloaded.
type kernelName struct {
	name  string
	image uint64
}

type kernelProfile struct {
	kernelName
	launches int
	time     time.Duration
	lines    lane.Profile
}

// Bounds on the collected data, and on the report.
const (
	maxProfiles   = 64
	maxSources    = 32 << 20
	toldLines     = 10
	toldText      = 100
	toldKernels   = 20
	detailKernels = 5
)

// Profile starts profiling kernels.
func (d *Device) Profile() {
	p := &d.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kernels == nil {
		p.kernels, p.sources = map[kernelName]*kernelProfile{}, map[uint64][]byte{}
	}
	p.on.Store(true)
}

var imageSeed = maphash.MakeSeed()

// remember keeps the text of a module that is being loaded, and returns its number. The text of several objects is not
// kept: a line number does not identify its object.
func (p *profile) remember(image []byte, objects []ptx.Object) (number uint64) {
	if !p.on.Load() {
		return 0
	}
	number = maphash.Bytes(imageSeed, image)
	p.mu.Lock()
	defer p.mu.Unlock()
	if text := objects[0].Text; len(objects) == 1 && p.sources[number] == nil && p.kept+len(text) <= maxSources {
		p.sources[number] = bytes.Clone(text)
		p.kept += len(text)
	}
	return number
}

// of returns the profile of a function, nil if there is none.
func (p *profile) of(f *function) *kernelProfile {
	if !p.on.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := kernelName{f.layout.Name, f.image}
	k := p.kernels[name]
	switch {
	case k != nil:
	case len(p.kernels) >= maxProfiles:
		k = &p.more
	default:
		k = &kernelProfile{kernelName: name}
		p.kernels[name] = k
	}
	return k
}

// gather returns the lane profile that collects the costs of the kernel's lines.
func (k *kernelProfile) gather() *lane.Profile {
	if k == nil || k.name == "" {
		return nil
	}
	return &k.lines
}

// launched adds a launch of the given time.
func (p *profile) launched(k *kernelProfile, ns int64) {
	if k == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.launches++
	k.time += time.Duration(ns)
}

// Report returns the costs of kernels since Profile was called.
func (d *Device) Report() string {
	p := &d.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*kernelProfile
	total, launches := p.more.time, p.more.launches
	for _, k := range p.kernels {
		all, total, launches = append(all, k), total+k.time, launches+k.launches
	}
	slices.SortFunc(all, func(a, b *kernelProfile) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.name, b.name))
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "profile: kernels took %v in %d launches\n", brief(total), launches)
	fmt.Fprintf(&b, "%7s %9s %9s %9s  %s\n", "share", "time", "launches", "mean", "kernel")
	for _, k := range all[:min(len(all), toldKernels)] {
		fmt.Fprintf(&b, "%6.1f%% %9v %9d %9v  %.*s\n", percent(k.time, total), brief(k.time), k.launches, brief(k.time/time.Duration(k.launches)), toldText, k.name)
	}
	if p.more.launches > 0 {
		fmt.Fprintf(&b, "%6.1f%% %9v %9d %9s  %s\n", percent(p.more.time, total), brief(p.more.time), p.more.launches, "", "other kernels")
	}
	for _, k := range all[:min(len(all), detailKernels)] {
		k.writeLines(&b, p.sources[k.image])
	}
	return b.String()
}

// writeLines writes a kernel's hottest lines.
func (k *kernelProfile) writeLines(b io.Writer, source []byte) {
	all := k.lines.Lines()
	total := time.Duration(0)
	for _, l := range all {
		total += l.Time
	}
	if len(all) == 0 {
		return
	}
	texts := bytes.Split(source, []byte("\n"))
	fmt.Fprintf(b, "\n%.*s\n%7s %11s %6s %6s\n", toldText, k.name, "share", "executions", "lanes", "line")
	for _, l := range all[:min(len(all), toldLines)] {
		var text []byte
		if l.Line <= len(texts) {
			text = bytes.Join(bytes.Fields(texts[l.Line-1]), []byte(" "))
		}
		fmt.Fprintf(b, "%6.1f%% %11d %6.1f %6d  %.*s\n", percent(l.Time, total), l.Runs, float64(l.Lanes)/float64(l.Runs), l.Line, toldText, text)
	}
}

func percent(part, of time.Duration) float64 {
	if of == 0 {
		return 0
	}
	return 100 * float64(part) / float64(of)
}

// brief rounds a time to three digits or so.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
