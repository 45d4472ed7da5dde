package xen

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// Devices are the kernel's devices that the agent needs, and the module of each.
var Devices = map[string]string{
	"dev/xen/xenbus":   "xen-xenbus-frontend",
	"dev/xen/gntalloc": "xen-gntalloc",
	"dev/xen/evtchn":   "xen-evtchn",
}

// loadModules loads the modules of missing devices.
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
			return lacking(lacks, modules[len(modules)-len(lacks):])
		}
		agent.Command(agent.ModulesTime, "modprobe", append([]string{"-a", "-q"}, modules...)...) // names of built-in modules are no error
	}
}

// lacking returns an error that names the missing modules. With several names modprobe treats all but the first as its
// parameters, unless -a is given.
func lacking(devices, modules []string) error {
	return fmt.Errorf("this domU's kernel has no %s: `modprobe -a %s` as root, or use a kernel with them", strings.Join(devices, ", "), strings.Join(modules, " "))
}

// LimitFile contains Linux's limit for the pages that all programs of a domain grant together.
const LimitFile = "/sys/module/xen_gntalloc/parameters/limit"

// others is the part of that limit left to other programs; it equals Linux's default limit.
const others = 1024

func pages(bytes uint64) int { return int((bytes + grant.PageBytes - 1) / grant.PageBytes) }

// readLimit returns Linux's limit.
func readLimit(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// raiseLimit raises Linux's limit to this number of pages for the agent, and some for other programs.
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

// explain describes the limit that a grant ran into, other than the agent's own. The remedy comes first, since a
// program receives at most 127 bytes of the text.
func explain(err error, used, want int) error {
	has, unread := readLimit(LimitFile)
	switch {
	case errors.Is(err, syscall.ENOMEM):
		err = fmt.Errorf("this domU has no memory for %d pages more: give it some (xl mem-set), or end other programs (%w)", want, syscall.ENOMEM)
	case !errors.Is(err, syscall.ENOSPC):
		return err
	case unread == nil && has < used+want+others:
		err = fmt.Errorf("restart the agent, which raises %s: somebody has lowered it to %d (%w)", LimitFile, has, syscall.ENOSPC)
	default:
		err = fmt.Errorf("this domU may grant no more pages: raise max_grant_frames in its configuration, or lower `pegasus-guest agent --memory`; or other programs grant many, then raise %s (%w)", LimitFile, syscall.ENOSPC)
	}
	return &agent.Obstacle{Err: err}
}
