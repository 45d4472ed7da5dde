// Package units divides the accelerators of a node into units of equal credits, which are the devices of the kubelet's
// device plugin API: pure functions. The units that the kubelet allocates to a container are a domain.
//
// Callers: package driver.
//
// Trust boundary: kubelet and daemon are trusted.
package units

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"pegasus/backend/control"
	"pegasus/cluster/claims"
	node "pegasus/cluster/slices"
	"pegasus/vcpu"
)

// Resource returns the name of the resource whose units have some credits. The name has the size, as that of huge pages
// has, so that a pod's limit means the same on each node.
func Resource(credits int64) string {
	return fmt.Sprintf("%s/credits-%d", claims.DriverName, credits)
}

// Accelerator is an accelerator that is divided into units.
type Accelerator struct {
	Name  string
	Units int64

	credits, memory int64 // of a unit
}

const (
	memoryStep = 2 << 20 // the page of a GPU
	maxID      = 63      // bytes of a device's ID
)

// Divide divides accelerators into units. Those that can't be divided are in left, each with the reason.
func Divide(all []control.Accelerator, credits int64, n node.Node) (divided []Accelerator, left []string) {
	for i := range all {
		a := &all[i]
		total := cmp.Or(int64(a.MaxCredits), n.Credits)
		d := Accelerator{Name: a.Name, Units: n.Sold(a) / credits, credits: credits}
		d.memory = int64(a.Memory) / total * credits / memoryStep * memoryStep
		switch {
		case d.Units <= 0:
			left = append(left, fmt.Sprintf("%s: it has %d credits to sell, fewer than a device's %d", a.Name, n.Sold(a), credits))
		case d.memory == 0:
			left = append(left, fmt.Sprintf("%s: a device of %d of %d credits has less than 2 MiB of its memory", a.Name, credits, total))
		case len(id(a.Name, d.Units)) > maxID:
			left = append(left, fmt.Sprintf("%s: the name makes IDs of devices longer than %d bytes; rename the accelerator", a.Name, maxID))
		default:
			divided = append(divided, d)
		}
	}
	return divided, left
}

func id(accelerator string, n int64) string { return accelerator + "-" + strconv.FormatInt(n, 10) }

// split returns the accelerator and the number of a unit.
func split(id string) (accelerator string, n int64) {
	i := max(0, strings.LastIndexByte(id, '-'))
	n, err := strconv.ParseInt(id[min(i+1, len(id)):], 10, 64)
	if err != nil {
		return "", 0
	}
	return id[:i], n
}

// order sorts units by accelerator and number.
func order(a, b string) int {
	nameA, nA := split(a)
	nameB, nB := split(b)
	return cmp.Or(cmp.Compare(nameA, nameB), cmp.Compare(nA, nB))
}

// IDs returns the accelerator's units.
func (a *Accelerator) IDs() (ids []string) {
	for n := range a.Units {
		ids = append(ids, id(a.Name, n))
	}
	return ids
}

// Prefer returns size of the available units, all of one accelerator, with the units of must. It takes the accelerator
// with the fewest available units that suffice: the scheduler counts the units of the node, so that a large request
// fails on a node where each accelerator has few left.
func Prefer(available, must []string, size int) ([]string, error) {
	by := map[string][]string{}
	for _, id := range available {
		name, _ := split(id)
		by[name] = append(by[name], id)
	}
	for _, id := range must {
		name, _ := split(id)
		maps.DeleteFunc(by, func(other string, _ []string) bool { return other != name })
	}
	var chosen []string
	most := 0
	for _, name := range slices.Sorted(maps.Keys(by)) {
		most = max(most, len(by[name]))
		if n := len(by[name]); n >= size && (chosen == nil || n < len(chosen)) {
			chosen = by[name]
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("%d devices requested: a domain has one accelerator, and none has more than %d available; request fewer, or add a node selector", size, most)
	}
	slices.SortFunc(chosen, order)
	chosen = slices.DeleteFunc(chosen, func(id string) bool { return slices.Contains(must, id) })
	return append(slices.Clone(must), chosen[:size-len(must)]...), nil
}

// Domain returns the domain of some units. Its name follows from the units alone: a container that starts again enters
// the domain that it had.
func Domain(ids []string, divided []Accelerator, sockets map[string]string) (*claims.Domain, error) {
	ids = slices.SortedFunc(slices.Values(ids), order)
	text := strings.Join(ids, ",")
	if len(ids) == 0 {
		return nil, fmt.Errorf("no devices")
	}
	name, _ := split(ids[0])
	if last, _ := split(ids[len(ids)-1]); last != name {
		return nil, fmt.Errorf("devices %s: they belong to accelerators %s and %s, and a domain has one; request fewer devices, or add a node selector", text, name, last)
	}
	i := slices.IndexFunc(divided, func(a Accelerator) bool { return a.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("devices %s: the daemon has no accelerator %q to sell", text, name)
	}
	n := int64(len(ids))
	credits, memory := n*divided[i].credits, strconv.FormatInt(n*divided[i].memory, 10)
	if credits > int64(vcpu.MaxCredits) {
		return nil, fmt.Errorf("devices %s: %d credits: a domain has at most %d", text, credits, vcpu.MaxCredits)
	}
	sum := sha256.Sum256([]byte(text))
	d := &claims.Domain{UID: types.UID(hex.EncodeToString(sum[:16])), Device: name, Units: ids,
		Settings: map[string]string{"accelerator": name, "credits": strconv.FormatInt(credits, 10), "memory": memory, "memory_guarantee": memory}}
	maps.Copy(d.Settings, sockets)
	return d, nil
}
