package arith

// between returns the position of a coordinate between the centres of a texture's first element and its last one, in
// 256ths; last is the position of the latter.
func between(x float32, last uint32) uint32 {
	v := Pick(x > 0, 0, x*512)
	v = Pick(v < 1<<30, 1<<30, v)
	return min(uint32(max((int32(v)+1)>>1-128, 0)), last)
}

// nearest returns the element that a coordinate lies in, or the first or last one.
func nearest(x float32, last uint32) uint32 {
	v := Pick(x > 0, 0, x)
	return min(uint32(int32(Pick(v < 1<<30, 1<<30, v))), last)
}
