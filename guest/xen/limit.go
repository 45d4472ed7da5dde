package xen

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
)

// Devices are what the agent needs of the kernel, and the module of each.
var Devices = map[string]string{
	"dev/xen/xenbus":   "xen-xenbus-frontend",
	"dev/xen/gntalloc": "xen-gntalloc",
	"dev/xen/evtchn":   "xen-evtchn",
}

// loadModules has the kernel's devices be there.
func loadModules() error {
	var lacks, modules []string
	for end := time.Now().Add(time.Second); ; time.Sleep(50 * time.Millisecond) { // udev may take a moment
		lacks = nil
		for path, module := range Devices {
			if _, err := os.Stat("/" + path); err != nil {
				lacks = append(lacks, "/"+path)
				modules = append(modules, module)
			}
		}
		if len(lacks) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("this domU's kernel has no %s: `modprobe %s` as root, or use a kernel with them",
				strings.Join(lacks, ", "), strings.Join(modules[len(modules)-len(lacks):], " "))
		}
		exec.Command("modprobe", append([]string{"-a", "-q"}, modules...)...).Run() // what it has built in is no error
	}
}

// LimitFile is where Linux says how many pages all programs of a domain may grant together.
const LimitFile = "/sys/module/xen_gntalloc/parameters/limit"

// others is what is left to other programs of that, which is as much as Linux gives all.
const others = 1024

func pages(bytes uint64) int { return int((bytes + grant.PageBytes - 1) / grant.PageBytes) }

// readLimit is what Linux allows.
func readLimit(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// raiseLimit has Linux allow so many pages to us, and some to others.
func raiseLimit(pages int) error { return raiseLimitIn(LimitFile, pages) }

func raiseLimitIn(path string, pages int) error {
	pages += region.Tables(pages) + others
	has, err := readLimit(path)
	if err == nil && has < pages {
		err = os.WriteFile(path, []byte(strconv.Itoa(pages)), 0)
	}
	if err != nil {
		return fmt.Errorf("%w: it has to let programs grant %d pages", err, pages)
	}
	return nil
}

// explain says whose limit it was that a grant ran into; ours was kept.
func explain(err error, used, want int) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if has, e := readLimit(LimitFile); e == nil && has < used+want+others {
		return fmt.Errorf("somebody has lowered %s to %d: restart the agent, which raises it (%w)", LimitFile, has, syscall.ENOSPC)
	}
	return fmt.Errorf("this domain may grant no more pages, which is Xen's limit: raise max_grant_frames in its configuration, or lower `pegasus-guest agent --memory`; or other programs grant many, then raise %s (%w)", LimitFile, syscall.ENOSPC)
}
