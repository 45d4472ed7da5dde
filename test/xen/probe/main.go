// Probe exercises Xen's devices from inside a domain. In a domU `probe grant` shares memory and an event channel with
// Dom0 and prints their numbers. In Dom0 `probe map DOMAIN PORT REF…` and `probe hand` use them, and `probe keep
// COMMAND…` keeps the files that a command leaves. `probe sched` prints the hypervisor's state of vCPUs, `probe weigh`
// sets a weight, and `probe cpus` handles vCPUs and weights as the daemon does. `probe record` records the hypervisor's
// scheduling trace, `probe agree` compares that trace with the hypervisor's counters, and `probe silence` switches
// tracing off. `probe left` counts the product's resources.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"pegasus/callbuf/grant"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "grant":
		err = share()
	case len(os.Args) > 2 && os.Args[1] == "keep":
		err = keep(os.Args[2:])
	case len(os.Args) > 4 && os.Args[1] == "map":
		err = mapThem(os.Args[2:])
	case len(os.Args) > 6 && os.Args[1] == "hand":
		err = hand(os.Args[2:])
	case len(os.Args) == 5 && os.Args[1] == "take":
		err = take(os.Args[2:])
	case len(os.Args) == 2 && os.Args[1] == "sched":
		err = sched()
	case len(os.Args) == 2 && os.Args[1] == "silence":
		err = silence()
	case len(os.Args) == 2 && os.Args[1] == "left":
		err = left()
	case len(os.Args) == 4 && os.Args[1] == "record":
		err = record(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "agree":
		err = agree(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "weigh":
		var domain, weight uint16
		if _, err = fmt.Sscan(os.Args[2]+" "+os.Args[3], &domain, &weight); err == nil {
			err = weigh(domain, weight)
		}
	case len(os.Args) > 2 && os.Args[1] == "cpus":
		err = cpuSide(os.Args[2:])
	default:
		err = fmt.Errorf("usage: probe grant | probe map DOMAIN PORT REF… | probe sched | probe weigh DOMAIN WEIGHT | probe cpus … | probe record DIR SECONDS | probe agree SECONDS | probe silence | probe left")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

const pages = 16

// rounds is the number of answers that the other side has to give.
const rounds = 20

// patience bounds the time of the other side, on a machine that a busy host emulates.
const patience = 5 * time.Minute

// share answers what the other side writes to the first byte of the last page by the same
// number in the byte behind it.
func share() error {
	g, err := grant.GrantPages(0, pages, true)
	if err != nil {
		return err
	}
	mem, err := g.Map()
	if err != nil {
		return err
	}
	e, err := grant.OpenEvents()
	if err != nil {
		return err
	}
	port, err := e.Offer(0)
	if err != nil {
		return err
	}
	copy(mem, "from the guest")
	fmt.Print("granted: ", port)
	for _, r := range g.Refs {
		fmt.Print(" ", r)
	}
	fmt.Println(" .")
	word := mem[(pages-1)*4096:]
	for answered := byte(0); answered != rounds; { // not word[0], which may be ahead: the other side needn't wait for an event to see an answer
		e.SetDeadline(time.Now().Add(patience))
		if _, err := e.Next(); err != nil {
			return err
		}
		answered = word[0]
		word[1] = answered
		if err := e.Notify(port); err != nil {
			return err
		}
	}
	fmt.Println("answered all")
	for end := time.Now().Add(patience); word[2] == 0; time.Sleep(10 * time.Millisecond) { // events that the other side hasn't received yet are lost when the channel closes
		if time.Now().After(end) {
			return fmt.Errorf("the other side hasn't seen it")
		}
	}
	return nil
}

// parse reads DOMAIN PORT REF….
func parse(args []string) (of grant.Domain, port grant.Port, refs []grant.Ref, err error) {
	var n []uint64
	for _, a := range args {
		v, err := strconv.ParseUint(a, 10, 32)
		if err != nil {
			return 0, 0, nil, err
		}
		n = append(n, v)
	}
	for _, r := range n[2:] {
		refs = append(refs, grant.Ref(r))
	}
	return grant.Domain(n[0]), grant.Port(n[1]), refs, nil
}

func mapThem(args []string) error {
	of, offered, refs, err := parse(args)
	if err != nil {
		return err
	}
	mem, _, err := grant.Map(of, refs, true)
	if err != nil {
		return err
	}
	fmt.Printf("there is %q\n", mem[:14])
	e, err := grant.OpenEvents()
	if err != nil {
		return err
	}
	port, err := e.Bind(of, offered)
	if err != nil {
		return err
	}
	word := mem[(pages-1)*4096:]
	began := time.Now()
	for i := byte(1); i <= rounds; i++ {
		word[0] = i
		if err := e.Notify(port); err != nil {
			return err
		}
		for word[1] != i {
			e.SetDeadline(time.Now().Add(patience))
			if _, err := e.Next(); err != nil {
				return fmt.Errorf("answer %d: %w", i, err)
			}
		}
	}
	word[2] = 1
	fmt.Printf("%d answers, %v each\n", rounds, time.Since(began)/rounds)
	if _, _, err := grant.Map(of, []grant.Ref{refs[0] + 100000}, true); err == nil {
		return fmt.Errorf("a page that isn't granted is mapped")
	}
	return nil
}
