package cuda_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"pegasus/cuda"
)

func exampleGraph() []cuda.GraphNode {
	return []cuda.GraphNode{
		{Op: cuda.OpNop, After: []uint32{}, Payload: []byte{}},
		{Op: cuda.OpFill, After: []uint32{0}, Payload: (&cuda.FillArgs{Dst: 512, Width: 3, Height: 1, ElementSize: 4}).Append(nil)},
		{Op: cuda.OpLaunch, After: []uint32{0, 1}, Payload: (&cuda.LaunchArgs{Function: 7, Params: []byte{1, 2, 3}}).Append(nil)},
		{Op: cuda.OpHostCallback, After: []uint32{2, 0, 1}, Payload: (&cuda.HostCallbackArgs{Callback: 9}).Append(nil)},
	}
}

func TestGraphRoundTrip(t *testing.T) {
	for name, want := range map[string][]cuda.GraphNode{"example": exampleGraph(), "empty": {}} {
		got, ok := cuda.DecodeGraph(cuda.AppendGraph(nil, want))
		if !ok {
			t.Errorf("%s: refused", name)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestGraphRefused(t *testing.T) {
	good := cuda.AppendGraph(nil, exampleGraph())
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	le := binary.LittleEndian
	second := 8 + 16 // behind the first node, which is empty
	for name, b := range map[string][]byte{
		"another version":    edit(func(b []byte) { le.PutUint32(b, 2) }),
		"too many nodes":     edit(func(b []byte) { le.PutUint32(b[4:], cuda.MaxGraphNodes+1) }),
		"more than there is": edit(func(b []byte) { le.PutUint32(b[4:], 5) }),
		"less than there is": edit(func(b []byte) { le.PutUint32(b[4:], 3) }),
		"after itself":       edit(func(b []byte) { le.PutUint32(b[second+16:], 1) }),
		"after a later one":  edit(func(b []byte) { le.PutUint32(b[second+16:], 2) }),
		"endless edges":      edit(func(b []byte) { le.PutUint32(b[second+4:], 1<<32-1) }),
		"endless payload":    edit(func(b []byte) { le.PutUint32(b[second+8:], 1<<32-1) }),
		"said in reserve":    edit(func(b []byte) { le.PutUint32(b[second+12:], 1) }),
		"more behind":        append(bytes.Clone(good), 0, 0, 0, 0, 0, 0, 0, 0),
		"none of its edges":  cuda.AppendGraph(nil, make([]cuda.GraphNode, 1))[:16],
	} {
		if _, ok := cuda.DecodeGraph(b); ok {
			t.Errorf("%s: taken", name)
		}
	}
	for n := range good {
		if _, ok := cuda.DecodeGraph(good[:n]); ok {
			t.Errorf("the first %d of %d bytes: taken", n, len(good))
		}
	}
	many := []cuda.GraphNode{{}, {After: make([]uint32, cuda.MaxGraphEdges+1)}}
	if _, ok := cuda.DecodeGraph(cuda.AppendGraph(nil, many)); ok {
		t.Errorf("%d edges: taken", cuda.MaxGraphEdges+1)
	}
}

// DecodeGraph accepts only graphs in which nodes depend on earlier ones, within the limits.
func FuzzGraph(f *testing.F) {
	f.Add(cuda.AppendGraph(nil, exampleGraph()))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		nodes, ok := cuda.DecodeGraph(b)
		if !ok {
			return
		}
		edges := 0
		for i, n := range nodes {
			edges += len(n.After)
			for _, a := range n.After {
				if int(a) >= i {
					t.Fatalf("node %d comes after node %d", i, a)
				}
			}
		}
		if len(nodes) > cuda.MaxGraphNodes || edges > cuda.MaxGraphEdges {
			t.Fatalf("%d nodes and %d edges", len(nodes), edges)
		}
		again, ok := cuda.DecodeGraph(cuda.AppendGraph(nil, nodes))
		if !ok || !reflect.DeepEqual(again, nodes) {
			t.Fatalf("%+v turned into %+v", nodes, again)
		}
	})
}
