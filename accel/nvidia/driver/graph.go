package driver

/*
#include "calls.h"
*/
import "C"

import (
	"unsafe"

	"pegasus/cuda"
)

// Handles of graphs. A node's is valid until its graph is destroyed.
type (
	Graph     = C.CUgraph
	GraphNode = C.CUgraphNode
	GraphExec = C.CUgraphExec
)

// CanCapture reports whether the driver can capture the work of a stream as a graph: from CUDA 11.4 on.
func CanCapture() bool {
	for _, name := range []string{"cuStreamUpdateCaptureDependencies", "cuGraphInstantiateWithFlags", "cuGraphAddEmptyNode"} {
		if !Has(name) {
			return false
		}
	}
	return true
}

// BeginCapture captures later work of a stream as nodes of a graph. Only the stream is affected.
func BeginCapture(c Context, s Stream) cuda.Result {
	return result(C.call_cuStreamBeginCapture_v2(c, s, C.CU_STREAM_CAPTURE_MODE_RELAXED))
}

// EndCapture ends the capture and returns the graph, which the caller owns, unless the capture failed.
func EndCapture(c Context, s Stream) (g Graph, r cuda.Result) {
	r = result(C.call_cuStreamEndCapture(c, s, &g))
	return g, r
}

// CaptureAfter sets the dependencies of the next node.
func CaptureAfter(c Context, s Stream, after []GraphNode) cuda.Result {
	return result(C.call_cuStreamUpdateCaptureDependencies(c, s, nodes(after), C.size_t(len(after)), C.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
}

// Captured returns the graph so far, and its latest node.
func Captured(c Context, s Stream) (g Graph, last GraphNode, r cuda.Result) {
	r = result(C.captured(c, s, &g, &last))
	return g, last, r
}

// AddEmpty adds a node that does nothing.
func AddEmpty(c Context, g Graph, after []GraphNode) (n GraphNode, r cuda.Result) {
	r = result(C.call_cuGraphAddEmptyNode(c, &n, g, nodes(after), C.size_t(len(after))))
	return n, r
}

func nodes(all []GraphNode) *GraphNode { return (*GraphNode)(unsafe.Pointer(unsafe.SliceData(all))) }

// Instantiate makes a graph executable.
func Instantiate(c Context, g Graph) (e GraphExec, r cuda.Result) {
	r = result(C.call_cuGraphInstantiateWithFlags(c, &e, g, 0))
	return e, r
}

// LaunchGraph queues a graph.
func LaunchGraph(c Context, e GraphExec, s Stream) cuda.Result {
	return result(C.call_cuGraphLaunch(c, e, s))
}

// DestroyExec releases an executable graph; a running launch still ends.
func DestroyExec(c Context, e GraphExec) cuda.Result { return result(C.call_cuGraphExecDestroy(c, e)) }

// DestroyGraph releases a graph.
func DestroyGraph(c Context, g Graph) cuda.Result { return result(C.call_cuGraphDestroy(c, g)) }
