// Foe attacks Dom0, as root of a domU, through everything that the two share. It
// is no part of the product.
//
//	foe all SECONDS      runs each of these in turn, for so long
//	foe scribble SECONDS writes random data into a control area, all the time
//	foe absurd SECONDS   writes impossible values into the XenStore
//	foe write SECONDS    writes into the XenStore as fast as it can
//	foe tables SECONDS   lends segments by invalid tables
//	foe revoke SECONDS   revokes grants of pages that the host has mapped
//	foe foreign SECONDS  lends pages that Dom0 may only read, or that are granted to another domain
//	foe swap SECONDS     changes the published control area, and its contents, all the time
//	foe crowd SECONDS    announces more processes than there may be
//	foe chatter SECONDS  sends messages for workers without end
//	foe ports SECONDS    offers channels that aren't Dom0's, and rings without end
//	foe tree SECONDS     changes its nodes in the XenStore in every way that a domU may
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"pegasus/guest/xen"
)

var acts = []struct {
	name string
	do   func(end time.Time) (actions int, err error)
}{{"scribble", scribble}, {"absurd", absurd}, {"write", write}, {"tables", tables}, {"revoke", revoke},
	{"foreign", foreign}, {"swap", swap}, {"crowd", crowd}, {"chatter", chatter}, {"ports", ports}, {"tree", tree}}

func main() {
	seconds, err := 0, error(nil)
	if len(os.Args) == 3 {
		seconds, err = strconv.Atoi(os.Args[2])
	}
	if seconds <= 0 || err != nil {
		fmt.Println("usage: foe all|ACT SECONDS")
		os.Exit(2)
	}
	for _, act := range acts {
		if os.Args[1] != "all" && os.Args[1] != act.name {
			continue
		}
		actions, err := act.do(time.Now().Add(time.Duration(seconds) * time.Second))
		fmt.Printf("foe: %s: %d times, %v\n", act.name, actions, err)
		if err := xen.Withdraw(); err != nil {
			fmt.Println("foe:", err)
		}
	}
}
