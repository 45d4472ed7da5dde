package frontend_test

import (
	"encoding/binary"
	"fmt"
	"log"

	"pegasus/frontend"
)

// twice doubles the number of each thread.
const twice = `
.version 6.0
.target sm_50
.address_size 64

.visible .entry twice(.param .u64 numbers)
{
	.reg .u64 %base, %at;
	.reg .u32 %thread, %value;
	ld.param.u64 %base, [numbers];
	mov.u32 %thread, %tid.x;
	mad.wide.u32 %at, %thread, 4, %base;
	ld.global.u32 %value, [%at];
	shl.b32 %value, %value, 1;
	st.global.u32 [%at], %value;
	ret;
}
`

// A Go program computes on its domain's accelerator. In a program that pegasus run starts, the socket is
// frontend.Socket().
func Example() {
	socket, stop := startDaemon()
	defer stop()

	client, err := frontend.Dial(socket)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	context, err := client.NewContext(0, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer context.Destroy()
	module, text, err := context.LoadModule([]byte(twice))
	if err != nil {
		log.Fatal(err, text)
	}
	kernel, err := module.Function("twice")
	if err != nil {
		log.Fatal(err)
	}

	numbers := []uint32{1, 2, 3, 5, 8, 13, 21, 34}
	bytes, err := binary.Append(nil, binary.LittleEndian, numbers)
	if err != nil {
		log.Fatal(err)
	}
	address, err := context.Alloc(uint64(len(bytes)))
	if err != nil {
		log.Fatal(err)
	}
	if err := context.CopyIn(address, bytes); err != nil {
		log.Fatal(err)
	}
	arguments := binary.LittleEndian.AppendUint64(nil, address)
	if err := module.Launch(0, kernel, [3]uint32{1, 1, 1}, [3]uint32{uint32(len(numbers)), 1, 1}, 0, arguments); err != nil {
		log.Fatal(err)
	}
	if err := context.CopyOut(bytes, address); err != nil { // comes behind the kernel, in the default stream
		log.Fatal(err)
	}
	if _, err := binary.Decode(bytes, binary.LittleEndian, numbers); err != nil {
		log.Fatal(err)
	}
	fmt.Println(numbers)
	// Output: [2 4 6 10 16 26 42 68]
}
