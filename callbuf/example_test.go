package callbuf_test

import (
	"fmt"
	"log"
	"time"

	"pegasus/callbuf"
)

// A guest process makes a call through a segment, and its worker, which is a goroutine here, answers it. Between
// processes the segment's file goes over a socket, and each side maps it.
func Example() {
	layout, err := callbuf.DefaultGeometry().Layout()
	if err != nil {
		log.Fatal(err)
	}
	file, err := callbuf.NewFile(layout)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	mem, err := callbuf.Map(file, layout.SegmentBytes)
	if err != nil {
		log.Fatal(err)
	}
	defer callbuf.Unmap(mem)
	host, err := callbuf.Format(mem, layout, 1, 0)
	if err != nil {
		log.Fatal(err)
	}
	guest, err := callbuf.Open(mem)
	if err != nil {
		log.Fatal(err)
	}

	const opGreet = 7
	go func() { // the worker: polls, sleeps when the ring is empty, and replies
		var packet callbuf.Packet
		for {
			ok, err := host.Next(&packet)
			if err != nil {
				log.Fatal(err)
			}
			if ok {
				break
			}
			host.Park(time.Second)
		}
		answer := []byte(fmt.Sprintf("operation %d with %q", packet.Op, packet.Payload))
		host.Reply(packet.ReplySlot, packet.ReplyTag, 0, answer)
	}()

	alive := func() error { return nil } // an error here, such as a worker's end, would end the wait
	var out [callbuf.MaxReplyData]byte
	result, answer, err := guest.Call(callbuf.Header{Op: opGreet}, []byte("hello"), out[:0], alive)
	fmt.Printf("%d, %s, %v\n", result, answer, err)
	// Output: 0, operation 7 with "hello", <nil>
}
