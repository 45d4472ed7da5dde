package accel_test

import (
	"fmt"

	"pegasus/accel"
	"pegasus/accel/copier"
	"pegasus/cuda"
)

// The least that a worker does with a device: it opens a context, submits work to a stream, and receives the end of the
// work and the time for which the work held an engine.
func Example() {
	var d accel.Device = copier.Open(1<<20, nil)
	defer d.Close()
	ctx, _ := d.NewContext(0)
	addr, _ := ctx.Alloc(4096)

	text, back := []byte("hello"), make([]byte, 5)
	ends := make(chan string, 2)
	done := func(r cuda.Result, u accel.Usage) {
		ends <- fmt.Sprintf("class %d: %v, held an engine: %v", u.Class, r == cuda.Success, u.End >= u.Start)
	}
	copies := []accel.Copy{
		{Dst: accel.End{Address: addr}, Src: accel.End{Host: text}, Width: 5, Height: 1, Depth: 1},
		{Dst: accel.End{Host: back}, Src: accel.End{Address: addr}, Width: 5, Height: 1, Depth: 1},
	}
	for i := range copies { // a pointer saves an allocation, and is read during Submit only
		if r := ctx.Submit(ctx.DefaultStream(), &copies[i], done); r != cuda.Success {
			fmt.Println("submit:", r)
		}
	}
	fmt.Println(<-ends)
	fmt.Println(<-ends)
	fmt.Printf("%s\n", back)
	// Output:
	// class 1: true, held an engine: true
	// class 2: true, held an engine: true
	// hello
}

// A caller gets the capabilities once, when it has opened the device. A group that the device does not have is nil.
func ExampleCapabilities() {
	d := copier.Open(1<<20, nil)
	defer d.Close()
	can := d.Capabilities()
	if can.Mapping == nil {
		fmt.Println("cuMemMap: not supported")
	}
	fmt.Println("queued:", can.Control.Queued())
	// Output:
	// cuMemMap: not supported
	// queued: 0
}

// An implementer states the groups that it has. The compiler checks that each is complete.
func ExampleDevice_capabilities() {
	var d accel.Device = predicting{copier.Open(1<<20, nil)}
	defer d.Close()
	fmt.Println(d.Capabilities().Prediction.Predict(&accel.Launch{}))
	// Output: 1000
}

// predicting adds predictions to another device.
type predicting struct{ accel.Device }

func (p predicting) Capabilities() accel.Capabilities {
	all := p.Device.Capabilities()
	all.Prediction = p
	return all
}

// Predict returns nanoseconds.
func (p predicting) Predict(accel.Work) int64 { return 1000 }
